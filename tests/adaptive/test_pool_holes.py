# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A pool that fills holes: the runs behind the first miss are used when they are worth
it, what lies between is computed, and nothing else is different."""

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm._eviction_C import (
    HoleRule,
    Pool,
    RecomputeCost,
    ShadowHost,
    ShadowSet,
    Simulator,
    make_policy,
    native_policies,
    wrap_policy,
)

from tests.adaptive.naive_pool import NaiveHoles, NaivePool
from tests.adaptive.pool_traffic import Traffic, check_agreement
from tests.adaptive.request_events import Event, event_lists
from tests.eviction.synthetic_trace import synthetic_requests

SLOPE = 0.25  # exact, as are all costs made of it
DEEP = RecomputeCost(per_token=SLOPE)
FREE_STEPS = HoleRule(RecomputeCost(), 1, 1, 0.0)

natives = pytest.mark.parametrize("name", native_policies())
rules = st.builds(
    NaiveHoles,
    budget=st.integers(1, 4),
    step=st.sampled_from([0.0, 0.5, 1.5, 3.0, 100.0]),
)


def cost_at(place: int) -> float:
    return 1 + SLOPE * (place + 1)


def evict(pool: Pool, serial: int, num_blocks: int) -> None:
    """Have blocks evicted by a request of others."""
    pool.admit(serial, list(range(900, 900 + num_blocks)), 0, num_blocks, 0.0)
    pool.finish(serial, [], 0.0)


# ---- Against a description ----


@settings(max_examples=300)
@given(num_blocks=st.integers(2, 24), rule=rules, events=event_lists())
def test_agrees_with_its_description(
    num_blocks: int, rule: NaiveHoles, events: list[Event]
):
    native = HoleRule(DEEP, 1, rule.budget, rule.step)
    pool = Pool(make_policy("lru", num_blocks), cost=DEEP, holes=native)
    naive = NaivePool(num_blocks, [0], rule, cost_at)
    check_agreement(Traffic(pool, naive), events)


@settings(max_examples=300)
@given(cached=st.lists(st.booleans(), max_size=12), tail=st.integers(1, 3), rule=rules)
def test_the_rule_agrees_with_its_description(
    cached: list[bool], tail: int, rule: NaiveHoles
):
    length = len(cached) + tail
    prefix = [*cached, False].index(False)
    runs = HoleRule(DEEP, 1, rule.budget, rule.step).runs(bytes(cached), prefix, length)
    used = [*range(prefix), *(i for first, end in runs for i in range(first, end))]
    assert used == rule.kept(cached, length, cost_at)


@natives
def test_keeps_its_books_under_every_policy(name: str):
    holes = 0
    for num_blocks in range(7, 20):
        draw = random.Random(num_blocks)
        pool = Pool(make_policy(name, num_blocks), cost=DEEP, holes=FREE_STEPS)
        traffic = Traffic(pool)
        for _ in range(400):
            kind = draw.choice(("admit", "admit", "admit", "grow", "finish", "finish"))
            numbers = draw.randrange(256), draw.randint(1, 7), draw.randrange(8)
            traffic.step(Event(kind, *numbers))
            pool.check()
        traffic.reset(Event("reset", 0, 1, 0))
        pool.check()
        while traffic.running:
            traffic.finish(Event("finish", 0, 1, 0))
        pool.check()
        assert pool.num_free == num_blocks
        holes += traffic.holes
    if make_policy(name, 1).traits["fills_holes"]:
        assert holes > 20


@settings(max_examples=200)
@given(
    num_blocks=st.integers(2, 40),
    windows=st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(
        lambda windows: windows != [0]
    ),
    events=event_lists(),
)
def test_with_several_groups_or_a_window_a_hit_is_a_prefix(
    num_blocks: int, windows: list[int], events: list[Event]
):
    with_rule = Pool(make_policy("lru", num_blocks), windows, holes=FREE_STEPS)
    without = Pool(make_policy("lru", num_blocks), windows)
    traffic = Traffic(with_rule, without, num_groups=len(windows))
    for event in events:
        traffic.step(event)
        with_rule.check()


# ---- By hand ----


class Listener:
    """Evicts in the order told; notes what it is told."""

    def __init__(self, *order: int) -> None:
        self.order = list(order)  # keys
        self.slots: dict[int, int] = {}
        self.inserted: list[tuple[int, int, int]] = []  # key, depth, parent
        self.admitted: list[list[bool]] = []

    def insert(self, slot: int, key: int, info: Any) -> None:
        self.slots[key] = slot
        self.inserted.append((key, info.depth, info.parent))

    def reinsert(self, slot: int) -> None:
        pass

    def take(self, slot: int) -> None:
        pass

    def forget(self, slot: int) -> None:
        pass

    def victim(self) -> int:
        return self.slots.pop(self.order.pop(0))

    def admit(self, serial: int, keys: Any, slots: Any, now: float) -> None:
        self.admitted.append([slot is not None for slot in slots])


def test_a_hole_is_filled_in_its_place_and_comes_back_tail_first():
    listener = Listener(1, 2, 4, 900, 901, 902, 903)
    pool = Pool(wrap_policy(listener, 6), block_size=16, holes=FREE_STEPS)
    path = [1, 2, 3, 4, 5]
    pool.admit(1, path, 5, 5, 0.0)
    pool.finish(1, path, 0.0)
    evict(pool, 2, 4)  # into the blank one and those of 1, 2 and 4
    assert pool.lookup([*path, 6], 5) == 2
    assert pool.admit(3, [*path, 6], 5, 6, 0.0) == (2, True, 2, 3, 2.0)
    assert listener.admitted[-1] == [False, False, True, False, True, False]
    pool.check()
    assert pool.lookup([*path, 6], 6) == 6, "what fills a hole can be found"
    listener.inserted.clear()
    pool.finish(3, [*path, 6], 0.0)
    # 3 and 5 were known.
    told = [(6, 96, 5), (4, 64, 3), (2, 32, 1), (1, 16, 0)]
    assert listener.inserted == told
    pool.check()


def test_a_run_that_is_not_worth_a_step_is_computed_again_and_copied():
    path = [1, 2, 3, 4]
    pools = []
    for budget in (2, 4):
        rule = HoleRule(RecomputeCost(), 1, budget, 1.5)
        policy = wrap_policy(Listener(1, 2, 900, 901, 902, 903), 6)
        pools.append(Pool(policy, holes=rule))
        pools[-1].admit(1, path[:3], 3, 3, 0.0)
        pools[-1].finish(1, path[:3], 0.0)
        evict(pools[-1], 2, 5)  # into the blank ones and those of 1 and 2
    two_a_step, four_a_step = pools
    # Four blocks take two steps, and so do two before the third and one behind it.
    assert two_a_step.lookup(path, 3) == 1
    # Four take one step. A second one costs 1.5, and to have the third block saves 1.
    assert four_a_step.lookup(path, 3) == 0
    assert four_a_step.admit(3, path, 3, 4, 0.0)[:4] == (0, True, 0, 0)
    four_a_step.check()
    four_a_step.finish(3, path, 0.0)
    assert four_a_step.lookup(path, 4) == 4
    four_a_step.check()


def test_no_room_for_the_holes_changes_nothing():
    listener = Listener(1)
    pool = Pool(wrap_policy(listener, 3), holes=FREE_STEPS)
    pool.admit(1, [1, 2], 2, 2, 0.0)
    pool.finish(1, [1, 2], 0.0)
    pool.admit(2, [900, 901], 0, 2, 0.0)  # in the blank one and that of 1, and held
    assert pool.admit(3, [1, 2, 3], 2, 3, 0.0)[:4] == (1, False, 1, 1)
    assert pool.num_free == 1
    pool.check()


# ---- Shadows and simulator ----


def trace_columns(requests: list[list[int]], gap: float) -> list[Any]:
    """Prompts of 16-token blocks and a token, an answer of one token."""
    lengths = [len(keys) for keys in requests]
    return [
        np.arange(len(requests)) * gap,
        np.array([16 * length + 1 for length in lengths], np.uint32),
        np.ones(len(requests), np.uint32),
        np.cumsum([0, *lengths]).astype(np.uint64),
        np.array([key for keys in requests for key in keys], np.uint64),
    ]


def simulated(name: str, blocks: int, rule: HoleRule | None, shadows: Any) -> Simulator:
    policy = make_policy(name, blocks)
    columns = trace_columns(synthetic_requests(600), 0.05)
    simulator = Simulator(*columns, 16, policy, cost=DEEP, holes=rule)
    simulator.attach(shadows)
    simulator.run_until(float("inf"))
    simulator.check()
    return simulator


@pytest.mark.parametrize("name", ["random-compute", "partial-compute"])
@pytest.mark.parametrize("blocks", [150, 400])
def test_a_shadow_counts_what_the_simulator_counts(name: str, blocks: int):
    rule = HoleRule(DEEP, 16, 32, 2.0)
    shadows = ShadowSet(blocks, 16, [("s3fifo", {}), (name, {})], cost=DEEP, holes=rule)
    counts = simulated(name, blocks, rule, shadows).counts
    assert counts["filled_holes"] > 0
    assert shadows.hit_tokens[1] == counts["hit_tokens"]
    assert shadows.saved[1] == pytest.approx(counts["saved"])
    shadows.check()
    # The other keeps blocks behind holes as well, and is no better for it.
    plain = ShadowSet(blocks, 16, [("s3fifo", {})], cost=DEEP)
    simulated(name, blocks, rule, plain)
    assert shadows.hit_tokens[0] == plain.hit_tokens[0]


def test_holes_are_those_of_the_policy_that_is_in_charge():
    rule = HoleRule(DEEP, 16, 32, 0.0)
    blocks = 150
    candidates = [("lru", {}), ("random-compute", {})]
    shadows = ShadowSet(blocks, 16, candidates, cost=DEEP, holes=rule)
    columns = trace_columns(synthetic_requests(600), 0.05)
    simulator = Simulator(*columns, 16, make_policy("lru", blocks), holes=rule)
    simulator.attach(shadows)
    simulator.run_until(15.0)
    assert simulator.counts["filled_holes"] == 0
    simulator.hand_over(shadows, 1)
    simulator.run_until(25.0)
    filled = simulator.counts["filled_holes"]
    assert filled > 0
    simulator.hand_over(shadows, 0)
    simulator.run_until(float("inf"))
    assert simulator.counts["filled_holes"] == filled
    simulator.check()


def test_saved_compute_is_that_of_the_hits_in_blocks_at_depth_zero():
    shadows = ShadowHost(9, 16, [("lru", {})], cost=DEEP, threaded=False)
    for serial in (1, 2):
        shadows.admit(serial, [1, 2, 3], 49, 4, 0.0)
        shadows.finish(serial, [1, 2, 3], 0.0)
    mark = shadows.mark()
    blocks = 3 + SLOPE * (16 + 32 + 48)
    assert shadows.poll_answer() == (mark, 98, [48], 2 * blocks, [blocks])


@pytest.mark.parametrize(
    ("blocks", "block_size", "window"), list(product((0, 1, 7, 40), (1, 16), (0, 33)))
)
def test_the_cost_of_a_prefix_is_that_of_its_blocks(
    blocks: int, block_size: int, window: int
):
    cost = RecomputeCost(0.25, 0.5, window)
    each = [cost((i + 1) * block_size) for i in range(blocks)]
    assert cost.of_prefix(blocks, block_size) == sum(each)
