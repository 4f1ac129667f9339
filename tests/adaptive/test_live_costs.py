# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A block costs what its depth says, however it came into the order: by its release, as
the last of several copies, or by a change of policy whose shadow did not know it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm._eviction_C import RecomputeCost

from tests.adaptive.live_traffic import BLOCK_SIZE, LiveTraffic
from tests.adaptive.request_events import Event, event_lists
from vllm.v1.core.eviction.hand_over import HandOver

pytestmark = pytest.mark.needs_upstream

CANDIDATES = ["lru", "gdsf", "asymcache"]
COST = RecomputeCost(1 / BLOCK_SIZE)
_BESIDES = ("pin", "unpin", "lose")


def costs_of(traffic: LiveTraffic) -> dict[int, int]:
    """Of each key that a policy by score knows: its cost, in blocks at depth zero."""
    entries, _, _ = traffic.queue.snapshot()
    return {key: (value >> 11) // 256 for key, _, value in entries}


def depths_of(traffic: LiveTraffic) -> dict[int, int]:
    """Of each key in the pool: the number of its block, counted from one."""
    return {
        traffic.key_of(block): block._block_hash_num_tokens // BLOCK_SIZE
        for block in traffic.pool.blocks[1:]
        if block.block_hash is not None
    }


@settings(max_examples=60)
@given(
    num_blocks=st.integers(3, 24),
    events=event_lists(50),
    choices=st.lists(st.integers(0, 20), min_size=50, max_size=50),
)
def test_a_block_costs_what_its_depth_says(
    num_blocks: int, events: list[Event], choices: list[int]
):
    traffic = LiveTraffic(CANDIDATES, num_blocks, cost=COST)
    live = 0
    for event, choice in zip(events, choices, strict=False):
        if event.extra >= 40:
            besides = _BESIDES[event.extra % len(_BESIDES)]
            event = Event(besides, event.which, event.length, event.extra)
        traffic.step(event)
        if choice < len(CANDIDATES):
            switch = HandOver(traffic.queue, choice)
            while not switch.advance():
                pass
            live = choice
        traffic.queue.get_all_free_blocks()  # the last of several copies enters
        if live:
            depths = depths_of(traffic)
            for key, cost in costs_of(traffic).items():
                assert key not in depths or cost == 1 + depths[key]


def test_what_the_shadow_has_evicted_keeps_its_cost():
    """LRU keeps the two prompts that were used last. GDSF keeps the one of three uses,
    for which the beginning of another had to go."""
    traffic = LiveTraffic(["lru", "gdsf"], 12, cost=COST)
    for which, length in ((0, 2), (0, 2), (0, 2), (5, 6), (3, 6)):
        traffic.admit(Event("admit", which, length, 1))
        traffic.finish(Event("finish", 0, 1, 0))
    known = set(traffic.host.order(1))
    switch = HandOver(traffic.queue, 1)
    while not switch.advance():
        pass
    depths, costs = depths_of(traffic), costs_of(traffic)
    assert set(costs) - known, "the shadow knows them all"
    assert costs == {key: 1 + depths[key] for key in costs}
