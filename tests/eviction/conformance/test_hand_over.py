# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What one instance of a policy has learnt passes on to another.

The other has its blocks in other slots, holds others in use, and has residents of
its own; blocks are matched by key. A policy in Python cannot be handed over.
"""

from collections.abc import Set
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm._eviction_C import make_policy, native_policies

from tests.eviction.event_pool import EventPool, event_lists

EMPTY: frozenset[int] = frozenset()
natives = pytest.mark.parametrize("name", native_policies())


def source_after(name: str, num_slots: int, events: list[tuple[str, int]]) -> Any:
    pool = EventPool(num_slots, make_policy(name, num_slots))
    pool.run(events)
    return pool


def keys_in_order(policy: Any) -> list[int]:
    return [policy.key_of(slot) for slot in policy.peek(policy.num_slots)]


def hand_over(pool: EventPool, name: str, held: Set[int] = EMPTY) -> Any:
    """A copy whose slots run the other way round; `held` slots of the source are in
    use in the copy, as are those that are in use in the source."""
    (source,) = pool.policies
    copy: Any = make_policy(name, pool.num_slots)

    def pair(slot: int) -> tuple[int, int]:
        return mirrored(pool, slot), pool.content[slot]

    copy.adopt(
        [pair(slot) for slot in sorted(pool.evictable) if slot not in held],
        [pair(slot) for slot in [*pool.in_use, *held]],
        source.snapshot(),
    )
    copy.check()
    return copy


def mirrored(pool: EventPool, slot: int) -> int:
    return pool.num_slots - 1 - slot


@natives
def test_same_residents_same_order(name: str):
    @settings(max_examples=200)
    @given(num_slots=st.integers(1, 12), events=event_lists())
    def any_events(num_slots: int, events: list[tuple[str, int]]):
        pool = source_after(name, num_slots, events)
        (source,) = pool.policies
        copy = hand_over(pool, name)
        assert keys_in_order(copy) == keys_in_order(source)
        blocks, ghosts, scalars = source.snapshot()
        its_blocks, its_ghosts, its_scalars = copy.snapshot()
        assert sorted(its_blocks) == sorted(blocks)
        assert its_scalars == scalars
        # ARC remembers one more than it has slots until one becomes evictable.
        over = max(0, source.num_ghosts - num_slots) if pool.evictable else 0
        assert its_ghosts == [*ghosts[:-1], *(keys[over:] for keys in ghosts[-1:])]

    any_events()


@natives
def test_blocks_in_use_keep_what_was_learnt(name: str):
    """Evictable there and in use here: released, they stand where they would if they
    had been taken and released there."""

    @settings(max_examples=200)
    @given(
        num_slots=st.integers(1, 12),
        events=event_lists(),
        held=st.sets(st.integers(0, 11)),
    )
    def any_events(num_slots: int, events: list[tuple[str, int]], held: set[int]):
        pool = source_after(name, num_slots, events)
        (source,) = pool.policies
        held &= set(pool.evictable)
        copy = hand_over(pool, name, held)
        assert len(copy) == len(pool.evictable) - len(held)
        for slot in sorted(held):
            source.take(slot)
        for slot in sorted(held):
            source.reinsert(slot)
            assert copy.key_of(mirrored(pool, slot)) == pool.content[slot]
            copy.reinsert(mirrored(pool, slot))
        assert keys_in_order(copy) == keys_in_order(source)

    any_events()


@natives
def test_unknown_blocks_enter_as_new_ahead_of_known_ones(name: str):
    source: Any = make_policy(name, 6)
    for slot in range(3):
        source.insert(slot, 10 + slot)
    copy: Any = make_policy(name, 6)
    # 10 is not resident here; 77 and 88 are not known there; 12 is in use.
    copy.adopt([(5, 77), (4, 11), (3, 88)], [(0, 12)], source.snapshot())
    assert keys_in_order(copy) == [77, 88, 11]
    copy.reinsert(0)
    assert keys_in_order(copy) == [77, 88, 11, 12]
    copy.check()


@natives
def test_unknown_blocks_in_use_are_inserted_when_they_are_released(name: str):
    copy: Any = make_policy(name, 2)
    copy.adopt([], [(1, 77)], make_policy(name, 2).snapshot())
    assert len(copy) == 0 and copy.key_of(1) == 0
    copy.insert(1, 77)
    assert copy.peek(2) == [1]


@natives
def test_ghosts_pass_on_but_not_of_what_is_resident(name: str):
    source: Any = make_policy(name, 3)
    for key in range(1, 4):
        source.insert(key - 1, key)
    # Hits, so that ARC, which remembers nothing of a mere scan, has a ghost too, and so
    # has LeCaR, which remembers nothing while recency and frequency agree.
    for slot in (0, 0, 1):
        source.take(slot)
        source.admit(1, [slot + 1], [slot], 0.0)
        source.reinsert(slot)
    for key in range(4, 7):
        slot = source.victim()
        assert slot is not None
        source.insert(slot, key)
    snapshot = source.snapshot()
    ghosts = {key for keys in snapshot[1] for key in keys}
    if source.ghost_limit == 0:
        assert not ghosts
        return
    assert ghosts
    here, *others = sorted(ghosts)
    copy: Any = make_policy(name, 3)
    copy.adopt([(0, here)], [], snapshot)
    copy.check()
    assert copy.num_ghosts == len(others)
    copy.admit(2, others, [None] * len(others), 0.0)
    assert copy.ghost_hits == len(others)
