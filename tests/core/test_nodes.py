# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`partial-compute` tells its nodes by the order in which vLLM releases blocks."""

from collections import Counter
from pathlib import Path

from real_pool import BLOCK_SIZE, make_pool_with, make_request
from real_scheduler import make_scheduler, run_to_end, step
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

CHUNK = {"chunk": 64}


def tokens(num_blocks: int, seed: int) -> list[int]:
    """Of so many full blocks, and one more."""
    return [500 * seed + i for i in range(num_blocks * BLOCK_SIZE + 1)]


def sizes_of_nodes(queue: PolicyFreeQueue) -> list[int]:
    entries, _, _ = queue.snapshot()
    return sorted(Counter(node for _, node, _ in entries).values())


def evicted(queue: PolicyFreeQueue) -> list[int]:
    """Ids of the blocks with content in the order in which they will go."""
    blocks = queue.get_all_free_blocks()
    return [block.block_id for block in blocks if block.block_hash is not None]


def start(scheduler: Scheduler, name: str, num_blocks: int, seed: int) -> Request:
    request = make_request(name, tokens(num_blocks, seed), max_tokens=2)
    scheduler.add_request(request)
    return request


def blocks_of(scheduler: Scheduler, request: Request, count: int) -> list[int]:
    return scheduler.kv_cache_manager.get_block_ids(request.request_id)[0][:count]


def test_two_requests_that_end_in_one_step_are_two_nodes(model: Path) -> None:
    scheduler = make_scheduler(model, "partial-compute", eviction_config=CHUNK)
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    first, second = start(scheduler, "a", 6, 1), start(scheduler, "b", 4, 2)
    step(scheduler)
    # The shorter one is less deep, and cheaper to compute again.
    ids = [*blocks_of(scheduler, second, 4), *blocks_of(scheduler, first, 6)]
    run_to_end(scheduler)
    assert sizes_of_nodes(queue) == [4, 6]
    assert evicted(queue) == ids, "each from its beginning"
    queue.check()


def test_what_a_request_adds_to_a_prefix_is_a_node(model: Path) -> None:
    scheduler = make_scheduler(model, "partial-compute", eviction_config=CHUNK)
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    for num_blocks in (4, 10):
        start(scheduler, str(num_blocks), num_blocks, 1)
        run_to_end(scheduler)
    assert sizes_of_nodes(queue) == [4, 6]
    queue.check()


def test_blocks_that_are_released_before_the_end_are_a_node_too() -> None:
    """At a preemption nothing is told; a release may be put off until other ends."""
    pool, queue = make_pool_with("partial-compute", 12)
    held = []
    for seed, count in ((1, 5), (2, 3)):
        blocks = pool.get_new_blocks(count)
        request = make_request(f"r{seed}", tokens(count, seed))
        pool.cache_full_blocks(request, blocks, 0, count, BLOCK_SIZE, 0)
        held.append(blocks)
    for blocks in held:
        pool.free_blocks(reversed(blocks))
    assert sizes_of_nodes(queue) == [3, 5]
    assert evicted(queue) == [block.block_id for blocks in held for block in blocks]
    queue.check()
