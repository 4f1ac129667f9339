# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random requests on the real `KVCacheManager`, with every policy, with one
KV-cache group and with two: the pool is sound after each operation, a consumer of
KV events knows what is resident, and in the end nothing is left behind."""

from collections import deque
from pathlib import Path

import pytest
from event_consumer import EventConsumer, resident_in
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_traffic import (
    ManagerTraffic,
    Operation,
    install_hooks,
    make_manager,
    operations,
)
from real_pool import check_pool, make_request
from real_scheduler import draw_tokens, make_scheduler
from vllm.v1.request import RequestStatus

NUM_BLOCKS = {1: 26, 2: 44}  # by the number of groups


@pytest.mark.parametrize("num_groups", [1, 2])
@settings(max_examples=30)
@given(operations)
def test_the_manager_is_sound(
    policy: str, num_groups: int, sequence: list[Operation]
) -> None:
    manager = make_manager(NUM_BLOCKS[num_groups], num_groups)
    traffic = ManagerTraffic(manager, install_hooks(manager, policy))
    for operation in sequence:
        traffic.run(operation)
    traffic.run_dry()


@pytest.mark.parametrize("num_groups", [1, 2])
@settings(max_examples=40)
@given(operations)
def test_lru_gives_the_blocks_that_upstreams_queue_gives(
    num_groups: int, sequence: list[Operation]
) -> None:
    ours = make_manager(NUM_BLOCKS[num_groups], num_groups)
    traffic = ManagerTraffic(ours, install_hooks(ours, "lru"))
    control = ManagerTraffic(make_manager(NUM_BLOCKS[num_groups], num_groups))
    for operation in sequence:
        traffic.run(operation)
        control.run(operation)
        assert traffic.given == control.given
    traffic.run_dry()
    control.run_dry()


ARRIVALS = st.lists(
    # Family, prompt tokens, output tokens, steps until the next, aborted after.
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 60),
        st.integers(1, 12),
        st.integers(0, 3),
        st.sampled_from([None, None, None, 0, 1, 4]),
    ),
    min_size=5,
    max_size=25,
)


@pytest.mark.parametrize("asynchronous", [False, True])
@settings(max_examples=8)
@given(arrivals=ARRIVALS, num_groups=st.sampled_from([1, 2]))
def test_the_scheduler_is_sound(
    policy: str,
    model: Path,
    asynchronous: bool,
    arrivals: list[tuple],
    num_groups: int,
) -> None:
    """The fork's own, also with a step in flight; chunks, preemption, aborts."""
    scheduler = make_scheduler(
        model,
        policy,
        num_blocks=NUM_BLOCKS[num_groups],
        num_groups=num_groups,
        max_tokens_in_step=24,
        asynchronous=asynchronous,
    )
    pool = scheduler.kv_cache_manager.block_pool
    consumer = EventConsumer()
    scheduler.kv_event_publisher = consumer
    flying: deque = deque()
    aborts: dict[int, list[str]] = {}
    now = 0

    def run_step() -> None:
        nonlocal now
        scheduler.finish_requests(aborts.pop(now, []), RequestStatus.FINISHED_ABORTED)
        output = scheduler.schedule()
        flying.append((output, draw_tokens(scheduler, output, now % 3)))
        while len(flying) > int(asynchronous):
            scheduler.update_from_output(*flying.popleft())
        consumer.follow(scheduler.kv_cache_manager.take_events())
        now += 1
        check_pool(pool)
        assert +consumer.copies == resident_in(pool)

    for i, (family, length, outputs, pause, abort_after) in enumerate(arrivals):
        tokens = [100 * family + t for t in range(length)]
        scheduler.add_request(make_request(f"{i}", tokens, max_tokens=outputs))
        if abort_after is not None:
            aborts.setdefault(now + abort_after, []).append(f"{i}")
        for _ in range(pause):
            run_step()
    while scheduler.has_unfinished_requests() or flying:
        assert now < 2000, "no progress"
        if not scheduler.has_unfinished_requests():
            scheduler.update_from_output(*flying.popleft())
        else:
            run_step()
    check_pool(pool)
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert scheduler.eviction is None or not scheduler.eviction._admitted
