# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What every policy promises about the order of blocks, after every event."""

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.eviction.event_pool import EventPool, event_lists

pools = st.integers(1, 12)


def check_order(pool: EventPool) -> list[int]:
    """The invariants that hold at any moment. Returns the order of eviction."""
    (policy,) = pool.policies
    policy.check()
    assert len(policy) == len(pool.evictable)
    assert policy.num_ghosts <= policy.ghost_limit
    order = policy.peek(pool.num_slots + 1)
    assert sorted(order) == sorted(pool.evictable), "each evictable block once"
    return order


@pytest.fixture
def run(make):
    """Sends events to one policy, checks after each, and tells them on a failure."""

    def run_events(
        num_slots: int, events: list[tuple[str, int]], **parameters: Any
    ) -> EventPool:
        pool = EventPool(num_slots, make(num_slots, **parameters))
        try:
            for event, number in events:
                pool.step(event, number)
                check_order(pool)
        finally:
            note(f"{num_slots} slots: {pool.log}")
        return pool

    return run_events


def test_victims_are_evictable_and_total(run):
    """Also: never one in use or unknown, and none only when there is none; that is
    asserted by `EventPool.victim`."""

    @settings(max_examples=120)
    @given(num_slots=pools, events=event_lists())
    def any_events(num_slots: int, events: list[tuple[str, int]]):
        pool = run(num_slots, events)
        while pool.evictable:
            assert pool.victim() is not None
            check_order(pool)
        assert pool.victim() is None

    any_events()


def test_peek_tells_the_next_victims_and_changes_nothing(run):
    @settings(max_examples=120)
    @given(num_slots=pools, events=event_lists(), n=st.integers(0, 13))
    def any_events(num_slots: int, events: list[tuple[str, int]], n: int):
        pool = run(num_slots, events)
        (policy,) = pool.policies
        order = check_order(pool)
        assert policy.peek(n) == order[:n]
        assert policy.peek(len(order)) == order, "looking changed something"
        assert [pool.victim() for _ in order] == order

    any_events()


def test_same_events_same_victims(make):
    @settings(max_examples=60)
    @given(num_slots=pools, events=event_lists())
    def any_events(num_slots: int, events: list[tuple[str, int]]):
        pool = EventPool(num_slots, make(num_slots), make(num_slots))
        pool.run(events)
        while pool.victim() is not None:
            pass

    any_events()


def test_cleared_is_new_but_for_what_it_has_learnt(make):
    @settings(max_examples=60)
    @given(num_slots=pools, before=event_lists(60), after=event_lists(60))
    def any_events(
        num_slots: int, before: list[tuple[str, int]], after: list[tuple[str, int]]
    ):
        used = make(num_slots)
        first = EventPool(num_slots, used)
        first.run(before)
        first.clear()
        check_order(first)
        assert used.num_ghosts == 0
        new = make(num_slots)
        new.load_model(used.model())  # by itself a policy forgets that, too
        second = EventPool(num_slots, used, new)
        second.run(after)
        while second.victim() is not None:
            pass

    any_events()


def test_a_block_in_use_is_never_chosen_and_comes_back(make):
    policy = make(3)
    for slot in range(3):
        policy.insert(slot, 10 + slot)
    policy.take(1)
    assert {policy.victim(), policy.victim()} == {0, 2}
    assert policy.victim() is None
    policy.reinsert(1)
    assert policy.victim() == 1


def test_the_tail_of_a_request_goes_first(make):
    """A request's blocks are released tail first; nothing else tells them apart.

    They are not the end of a request here, of which `partial-compute` takes the
    beginning.
    """
    policy = make(6)
    for slot in reversed(range(6)):
        policy.insert(slot, 100 + slot)
    assert policy.peek(6) == [5, 4, 3, 2, 1, 0]


def test_the_tail_of_a_request_goes_first_after_a_hit_too(make):
    policy = make(6)
    for slot in reversed(range(6)):
        policy.insert(slot, 100 + slot)
    for slot in range(6):
        policy.take(slot)
    policy.admit(1, [100 + slot for slot in range(6)], list(range(6)), 0.0)
    for slot in reversed(range(6)):
        policy.reinsert(slot)
    assert policy.peek(6) == [5, 4, 3, 2, 1, 0]
