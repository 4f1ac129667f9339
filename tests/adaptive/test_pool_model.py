# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The pool model: what is held, found, copied and evicted.

Whether it is like vLLM's pool is shown where a real scheduler runs beside it; here
it must be like its description.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm._eviction_C import (
    Pool,
    RecomputeCost,
    ShadowSet,
    make_policy,
    native_policies,
    wrap_policy,
)

from tests.adaptive.naive_pool import NaivePool
from tests.adaptive.pool_traffic import Traffic, check_agreement
from tests.adaptive.request_events import Event, event_lists
from vllm.v1.core.eviction.policy import BlockInfo

natives = pytest.mark.parametrize("name", native_policies())


@settings(max_examples=200)
@given(num_blocks=st.integers(2, 24), events=event_lists())
def test_agrees_with_its_description(num_blocks: int, events: list[Event]):
    pool, naive = Pool(make_policy("lru", num_blocks)), NaivePool(num_blocks, [0])
    check_agreement(Traffic(pool, naive), events)


@settings(max_examples=200)
@given(
    num_blocks=st.integers(2, 40),
    windows=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    events=event_lists(),
)
def test_groups_share_the_blocks_and_a_hit_needs_them_all(
    num_blocks: int, windows: list[int], events: list[Event]
):
    pool, naive = (
        Pool(make_policy("lru", num_blocks), windows),
        NaivePool(num_blocks, windows),
    )
    check_agreement(Traffic(pool, naive, num_groups=len(windows)), events)


@natives
def test_keeps_its_books_under_every_policy(name: str):
    @settings(max_examples=150)
    @given(
        num_blocks=st.integers(2, 24),
        windows=st.lists(st.integers(0, 3), min_size=1, max_size=2),
        events=event_lists(),
    )
    def any_events(num_blocks: int, windows: list[int], events: list[Event]):
        pool = Pool(make_policy(name, num_blocks), windows)
        traffic = Traffic(pool, num_groups=len(windows))
        for event in events:
            traffic.step(event)
            pool.check()
        while traffic.running:
            traffic.finish(Event("finish", 0, 1, 0))
        pool.check()
        assert pool.num_free == num_blocks

    any_events()


@natives
def test_a_pool_of_two_blocks(name: str):
    pool = Pool(make_policy(name, 2))
    assert pool.admit(1, [1, 2], 2, 2, 0.0)[:2] == (0, True)
    assert pool.admit(2, [1, 2, 3], 2, 3, 0.0)[:2] == (2, False)
    pool.finish(1, [1, 2], 0.0)
    # The last block is computed again, and there is only the block itself to do it in:
    # then the request must wait, as in vLLM, for as long as it is held.
    assert pool.admit(3, [1, 2], 1, 2, 0.0)[:2] == (1, True)
    pool.check()
    assert pool.num_free == 0
    pool.finish(3, [1, 2], 0.0)
    assert pool.lookup([1, 2], 2) == 2
    pool.check()


def test_output_is_found_when_it_was_told_of_and_not_before():
    pool = Pool(make_policy("lru", 8))
    pool.admit(1, [1, 2], 1, 2, 0.0)
    assert pool.lookup([1, 2, 3], 3) == 2, "a prompt can be found while it runs"
    pool.grow(1, 3)
    assert pool.lookup([1, 2, 3], 3) == 2, "held, but not full"
    pool.grow(1, 3, [1, 2, 3])
    assert pool.lookup([1, 2, 3], 3) == 3
    pool.finish(1, [1, 2, 3, 4], 0.0)
    assert pool.lookup([1, 2, 3, 4], 4) == 4


class Listener:
    """The part of a policy that is told of releases."""

    def __init__(self) -> None:
        self.told: list[tuple[int, BlockInfo]] = []

    def insert(self, slot: int, key: int, info: BlockInfo) -> None:
        self.told.append((key, info))


def test_a_policy_is_told_where_in_the_prompt_a_block_lies():
    listener = Listener()
    cost = RecomputeCost(per_token=0.5, per_window_token=0.25, window=24)
    pool = Pool(wrap_policy(listener, 8), block_size=16, cost=cost)
    pool.admit(7, [1, 2], 1, 3, 0.0)
    pool.finish(7, [1, 2, 3], 0.0)
    assert listener.told == [
        (3, BlockInfo(depth=48, parent=2, cost=1 + 24 + 6, serial=7)),
        (2, BlockInfo(depth=32, parent=1, cost=1 + 16 + 6, serial=7)),
        (1, BlockInfo(depth=16, parent=0, cost=1 + 8 + 4, serial=7)),
    ]


def test_a_request_that_grows_takes_what_there_is():
    pool = Pool(make_policy("lru", 3))
    pool.admit(1, [1, 2], 2, 2, 0.0)
    pool.grow(1, 9)
    assert pool.num_free == 0
    pool.grow(7, 9)  # unknown
    pool.finish(7, [1], 0.0)
    pool.finish(1, [1, 2, 3, 4, 5], 0.0)
    assert pool.num_free == 3
    assert pool.lookup([1, 2, 3, 4], 4) == 3


@natives
def test_a_shadow_costs_few_bytes_a_block(name: str):
    num_blocks = 65536
    most = {"gittins": 160, "partial-compute": 100, "session-lru": 80}.get(name, 64)
    shadows = ShadowSet(num_blocks, 16, [(name, {})])
    assert shadows.bytes <= most * num_blocks
