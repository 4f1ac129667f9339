# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random traffic on the real `BlockPool`, with every policy and with upstream's
own queue: after each operation each block is free exactly once or in use, the
count is right, and a consumer of KV events knows what is resident."""

from hypothesis import given, settings
from pool_traffic import Operation, PoolTraffic, operations
from real_pool import ids, make_pool, make_pool_with

NUM_BLOCKS = 14


@settings(max_examples=60)
@given(operations)
def test_upstreams_own_queue_passes(sequence: list[Operation]) -> None:
    """The control: what fails here is not ours."""
    traffic = PoolTraffic(make_pool(NUM_BLOCKS, events=True))
    for operation in sequence:
        traffic.run(operation)


@settings(max_examples=120)
@given(operations)
def test_every_block_is_free_once_or_in_use(
    policy: str, sequence: list[Operation]
) -> None:
    pool, queue = make_pool_with(policy, NUM_BLOCKS, events=True)
    traffic = PoolTraffic(pool)
    for operation in sequence:
        traffic.run(operation)
        assert queue.failure == ""


@settings(max_examples=200)
@given(operations)
def test_lru_does_what_upstreams_queue_does(sequence: list[Operation]) -> None:
    """Operation for operation, in lock-step; the whole order, not only victims."""
    ours = PoolTraffic(make_pool_with("lru", NUM_BLOCKS, events=True)[0])
    upstream = PoolTraffic(make_pool(NUM_BLOCKS, events=True))
    for operation in sequence:
        ours.run(operation)
        upstream.run(operation)
        assert ids(ours.pool.free_block_queue.get_all_free_blocks()) == ids(
            upstream.pool.free_block_queue.get_all_free_blocks()
        )
        assert (ours.victims, ours.reused) == (upstream.victims, upstream.reused)
