# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A change of policy while requests come and go, in slices of any size.

The new policy's free blocks stand, when it takes over, as follows. Within each of the
policy's queues: first what its shadow does not know, in order of release; then what
the shadow knows, in the shadow's order; then what was released since the plan was
asked for, in order of release, but under SIEVE, where a known block returns to the
place that it had. Under SLRU a block that enters the protected segment meanwhile can
push its first ones out, behind the probationary ones; so can one that becomes LIR under
LIRS. Nothing else is promised, and this is tested.
"""

import gc
import random
import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm._eviction_C import native_policies

from tests.adaptive.live_traffic import LiveTraffic
from tests.adaptive.request_events import CONVERSATIONS, Event, block_keys, event_lists
from vllm.v1.core.eviction import hand_over
from vllm.v1.core.eviction.hand_over import HandOver
from vllm.v1.core.eviction.registry import policy_names

pytestmark = pytest.mark.needs_upstream

POLICIES = [name for name in native_policies() if name in policy_names()]
# Each policy once as the old and once as the new one, and all pairs of those that are
# most different, and are handed over most. All pairs of all would grow with the square,
# and what a policy must do right does not depend on which other one is there.
_OFTEN = ("lru", "s3fifo", "arc")
PAIRS = sorted(
    {*zip(POLICIES, POLICIES[1:] + POLICIES[:1], strict=True)}
    | {(old, new) for old in _OFTEN for new in _OFTEN if old != new}
)
pairs = pytest.mark.parametrize(("old", "new"), PAIRS, ids=map("-".join, PAIRS))
natives = pytest.mark.parametrize("name", POLICIES)

# In one queue by a score of uses, cost and age.
BY_SCORE = ("asymcache",)

# What happens to blocks besides requests, in the middle of everything.
_BESIDES = ("pin", "unpin", "lose", "admit", "finish")


def slices(copied: int, placed: int) -> Any:
    """Slots and blocks that are handled in one step."""
    return mock.patch.multiple(
        hand_over, COPIED_IN_A_STEP=copied, PLACED_IN_A_STEP=placed
    )


def complete(switch: HandOver) -> None:
    for _ in range(10_000):
        if switch.advance():
            return
    raise AssertionError("the hand-over does not end")


def change(traffic: LiveTraffic, candidate: int) -> None:
    complete(HandOver(traffic.queue, candidate))


def random_events(seed: int, number: int) -> Iterator[Event]:
    """Admissions and ends of requests, the same for a seed."""
    draw = random.Random(seed)
    kinds = ["admit", "admit", "admit", "grow", "finish", "finish"]
    for _ in range(number):
        numbers = draw.randrange(256), draw.randint(1, 7), draw.randrange(8)
        yield Event(draw.choice(kinds), *numbers)


def requests(traffic: LiveTraffic, seed: int, number: int) -> None:
    for event in random_events(seed, number):
        traffic.step(event)


@settings(max_examples=250)
@given(
    num_blocks=st.integers(2, 24),
    candidates=st.permutations(POLICIES),
    events=event_lists(),
    steps=st.lists(st.integers(0, 255), min_size=60, max_size=60),
    copied=st.integers(1, 9),
    placed=st.integers(1, 9),
)
def test_a_switch_in_the_middle_of_everything(
    num_blocks: int,
    candidates: list[str],
    events: list[Event],
    steps: list[int],
    copied: int,
    placed: int,
):
    """Slices between any two events; some switches are given up, or give way to
    another. Each block is free exactly once, whatever its state is."""
    traffic = LiveTraffic(candidates, num_blocks)
    switch = None
    with slices(copied, placed):
        for event, step in zip(events, steps, strict=False):
            if event.extra >= 30:
                besides = _BESIDES[event.extra % len(_BESIDES)]
                event = Event(besides, event.which, event.length, event.extra)
            traffic.step(event)
            traffic.queue.check()
            if switch is None or step >= 240:
                switch = HandOver(traffic.queue, step % len(candidates))
            elif step >= 230:
                switch.abandon()
                switch = None
            for _ in range(step % 4):
                if switch is not None and switch.advance():
                    switch = None
                traffic.queue.check()
            if step % 8 == 0:
                traffic.check()
        if switch is not None:
            complete(switch)
    traffic.check()
    traffic.host.check()
    while traffic.running:
        traffic.finish(Event("finish", 0, 1, 0))
    traffic.unpin(Event("unpin", 0, 1, 0))
    traffic.check()
    free = traffic.queue.num_free_blocks
    traffic.evict_all()
    assert free == num_blocks and traffic.queue.num_free_blocks == 0


@settings(max_examples=120)
@given(events=event_lists(50), num_blocks=st.integers(2, 16), data=st.data())
def test_switching_at_every_step(
    events: list[Event], num_blocks: int, data: st.DataObject
):
    candidates = data.draw(st.permutations(POLICIES))
    traffic = LiveTraffic(candidates, num_blocks)
    for i, event in enumerate(events):
        policy = candidates[i % len(candidates)]
        traffic.step(event)
        change(traffic, i % len(POLICIES))
        traffic.check()
        new, shadow = traffic.queue.snapshot(), traffic.host.snapshot(i % len(POLICIES))
        # Segments, nodes and depths are those of the blocks that are here.
        if policy not in ("gittins", "partial-compute", "t-lru"):
            assert new[2] == shadow[2], "targets"
        # No block of the new policy is a ghost of it, and no ghost was made up.
        evictable = set(traffic.queue.order())
        for ghosts, its_ghosts in zip(new[1], shadow[1], strict=True):
            assert not evictable & set(ghosts)
            assert [key for key in its_ghosts if key in ghosts] == ghosts


Entries = list[tuple[int, int, int]]


def without_ages(name: str, entries: Entries) -> Entries:
    """What a policy knows of blocks, but for what changes with each request."""
    age_in_queue = name in ("asymcache", "lhd", "random-compute")
    age_in_value = name == "workload-aware"
    return [
        (
            key,
            0 if age_in_queue else queue,
            0 if age_in_value else value % 4 if name == "s4fifo" else value,
        )
        for key, queue, value in entries
    ]


def queues_of(entries: Entries, keys: set[int]) -> dict[int, list[int]]:
    """Of each queue of a policy the keys in it, in order."""
    queues: dict[int, list[int]] = {}
    for key, queue, _ in entries:
        if key in keys:
            queues.setdefault(queue, []).append(key)
    return queues


@pairs
def test_blocks_stand_as_described(old: str, new: str):
    """With requests between the slices, that hit, evict and release anything."""
    seen: set[str] = set()
    for seed in range(60):
        num_blocks, copied = 4 + seed % 17, 1 + seed % 7
        traffic = LiveTraffic([old, new], num_blocks)
        requests(traffic, seed, 40)
        with slices(copied, 3):
            switch = HandOver(traffic.queue, 1)
            for event in random_events(seed + 1000, 6):  # while residents are copied
                traffic.step(event)
                if switch._copied + copied <= num_blocks:
                    switch.advance()
            while switch._phase is not hand_over._Phase.PLAN:
                switch.advance()
            # As of the plan: what the shadow has, and what the live pool has.
            shadow = traffic.host.snapshot(1)
            here = traffic.queue.order()
            traffic.touched.clear()
            twice = Counter(traffic.key_of(block) for block in traffic.pool.blocks)
            traffic.copied = {key for key, times in twice.items() if times > 1}
            release = [
                k for b in traffic.released() if (k := traffic.key_of(b)) in here
            ]
            done = False
            for event in random_events(seed + 2000, 8):
                traffic.step(event)
                if done := switch.advance():
                    break
            if not done:
                complete(switch)
        after = without_ages(new, traffic.queue.snapshot()[0])
        shadows = without_ages(new, shadow[0])
        evictable = set(traffic.queue.order()) - traffic.copied
        there = {key for key, _, _ in shadows}
        untouched = {key for key in here if key not in traffic.touched} & evictable
        known, unknown = untouched & there, untouched - there
        late = evictable - untouched
        seen |= {"known" * bool(known), "unknown" * bool(unknown), "late" * bool(late)}

        # What the shadow knows keeps its queue, what was learnt, and its order.
        queues, its_queues = queues_of(after, known), queues_of(shadows, known)
        pushed: set[int] = set()
        if new in ("lirs", "slru"):
            pushed = {key for key in its_queues.get(1, []) if key in queues.get(0, [])}
            its_queues = {0: sum(its_queues.values(), []), 1: []}
            queues = {0: sum(queues.values(), []), 1: []}
        if new == "wtinylfu":  # what its shares have no room for goes to the probation
            its = {key: queue for key, queue, _ in shadows}
            pushed = {k for k, queue, _ in after if queue == 1 != its.get(k, 1)}
            queues = queues_of(after, known - pushed)
            its_queues = queues_of(shadows, known - pushed)
        if new == "gittins":  # a segment is a queue, and has another number here
            queues = dict(enumerate(queues[each] for each in sorted(queues)))
            its_queues = dict(enumerate(its_queues[i] for i in sorted(its_queues)))
        assert queues == its_queues, seed
        learnt = {key: value for key, _, value in shadows if key in known}
        assert {k: v for k, _, v in after if k in known} == learnt, seed
        if new in BY_SCORE:  # what is new stands where its score puts it
            continue
        # What it does not know is new, in order of release, ahead of the known.
        for keys in queues_of(after, unknown).values():
            assert keys == [key for key in release if key in set(keys)], seed
        for keys in queues_of(after, untouched - pushed).values():
            assert keys == sorted(keys, key=lambda key: key in known), seed
        # What came later stands behind all of them.
        returned = late & there if new == "sieve" else set()
        for keys in queues_of(after, evictable - returned - pushed).values():
            assert keys == sorted(keys, key=lambda key: key in late), seed
    assert seen >= {"known", "unknown", "late"}, "too little happens"


@pairs
def test_with_the_residents_of_its_shadow_the_order_is_the_shadows(old: str, new: str):
    """Nothing was evicted yet, so that all have the same blocks. (Output that another
    request hits before the first has ended is not known to the shadows, nor are
    second copies.)"""
    traffic = LiveTraffic([old, new], 200)
    for event in random_events(seed=3, number=80):
        if event.kind != "grow":
            traffic.step(event)
    assert traffic.queue.evictions == 0 and traffic.queue.order()
    for candidate in (1, 0, 1):
        change(traffic, candidate)
        order, shadow = traffic.queue.order(), traffic.host.order(candidate)
        once = [key for key in shadow if key not in traffic.copied]
        assert [key for key in order if key not in traffic.copied] == once
        assert len(once) > 3
        traffic.check()


@natives
def test_under_lru_a_parent_never_goes_before_its_child(name: str):
    """Also after a switch to it that took many steps. (Of blocks that have copies each
    is released in its own time, under vLLM's own LRU too.)"""

    @settings(max_examples=80)
    @given(
        num_blocks=st.integers(4, 30),
        before=event_lists(40),
        during=event_lists(30),
        placed=st.integers(1, 5),
    )
    def any_events(
        num_blocks: int, before: list[Event], during: list[Event], placed: int
    ):
        traffic = LiveTraffic([name, "lru"], num_blocks)
        for event in before:
            traffic.step(event)
        with slices(5, placed):
            switch: HandOver | None = HandOver(traffic.queue, 1)
            for event in during:
                traffic.step(event)
                if switch is not None and switch.advance():
                    switch = None
            if switch is not None:
                complete(switch)
        while traffic.running:
            traffic.finish(Event("finish", 0, 1, 0))
        order = enumerate(traffic.queue.order())
        place = {key: at for at, key in order if key not in traffic.copied}
        for conversation in range(CONVERSATIONS):
            keys = block_keys(conversation, 9)
            for parent, child in zip(keys, keys[1:], strict=False):
                if parent in place and child in place:
                    assert place[child] < place[parent]

    any_events()


@natives
def test_a_reset_in_each_phase(name: str):
    other = next(policy for policy in POLICIES if policy != name)
    phases = set()
    for steps in range(12):
        with slices(4, 2):
            traffic = LiveTraffic([other, name], 10)
            requests(traffic, seed=steps, number=30)
            switch = HandOver(traffic.queue, 1)
            done = any(switch.advance() for _ in range(steps))
            if not done:
                phases.add(switch._phase.name)
            traffic.reset(Event("reset", 0, 1, 0))
            traffic.check()
            assert not traffic.order(), "contents are gone"
            requests(traffic, seed=steps + 100, number=10)
            if not done:
                complete(switch)  # starts anew, with what is there now
            traffic.check()
            for _ in range(30):
                requests(traffic, seed=steps + 200, number=3)
                traffic.check()
    assert phases == {"COPY", "PLAN", "PLACE"}


def test_a_step_whose_time_is_spent_does_no_other_piece():
    """What comes out is the same, after more steps."""

    def steps(seconds: float) -> tuple[int, list[int]]:
        traffic = LiveTraffic(["lru", "gittins"], 40)
        requests(traffic, seed=7, number=60)
        while traffic.running:
            traffic.finish(Event("finish", 0, 1, 0))
        times = {"SECONDS_IN_A_STEP": seconds, "_PIECE": 2}
        with slices(32, 32), mock.patch.multiple(hand_over, **times):
            switch = HandOver(traffic.queue, 1)
            unfinished = sum(1 for _ in iter(switch.advance, True))
        traffic.check()
        return unfinished, traffic.order()

    few, order = steps(seconds=3600.0)
    many, the_same = steps(seconds=0.0)
    assert order == the_same and len(order) > 8
    # 41 slots are copied, and blocks placed, two at a time.
    assert few <= 4 and many >= 41 // 2 + len(order) // 2


def test_the_second_of_two_switches_counts():
    """Also when the plan for the first is still to come, or there already."""
    for steps in range(12):
        with slices(2, 1):
            traffic = LiveTraffic(["lru", "s3fifo", "arc"], 10)
            requests(traffic, seed=7, number=30)
            first = HandOver(traffic.queue, 1)
            if any(first.advance() for _ in range(steps)):
                break
            change(traffic, 2)
            traffic.check()
            # ARC has two lists of ghosts, S3-FIFO one.
            assert len(traffic.queue.snapshot()[1]) == 2
    assert steps > 6, "the first switch was over too soon"


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("threaded", [False, True])
def test_ten_thousand_switches_keep_no_memory(threaded: bool):
    traffic = LiveTraffic(POLICIES, 64, threaded=threaded)

    def switch(times: int) -> None:
        for i in range(times):
            if i % 50 == 0:
                requests(traffic, seed=i, number=5)
            switch = HandOver(traffic.queue, i % len(POLICIES))
            while not switch.advance():
                traffic.host.drain()

    # Both end on the policy that they began with.
    switch(2_000 // len(POLICIES) * len(POLICIES))  # what is allocated once
    gc.collect()
    before = resident_bytes()
    sizes = traffic.queue.bytes, traffic.host.bytes
    switch(10_000 // len(POLICIES) * len(POLICIES))
    traffic.check()
    assert (traffic.queue.bytes, traffic.host.bytes) == sizes
    gc.collect()
    # A policy for 64 blocks takes some KiB: of 10,000 kept ones 1 % would show.
    assert resident_bytes() - before < 1 << 20
