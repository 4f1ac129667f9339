# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`reset_prefix_cache` drops all contents without a word to the free queue."""

from collections.abc import Callable

import pytest
from real_pool import ask, check_pool, drain, find, hold, ids, make_pool_with, store
from vllm.v1.core.block_pool import BlockPool

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue


def used_pool(policy: str) -> tuple[BlockPool, PolicyFreeQueue]:
    """Copies, hits, ghosts, a last resort; all blocks are free."""
    pool, queue = make_pool_with(policy, 10)
    store(pool, *range(1, 16))
    store(pool, 15, 15)
    hit = find(pool, 15)
    assert hit is not None
    pool.touch([hit])
    ask(queue, 15, hit)
    pool.free_blocks([hit])
    ask(queue, 1, None)
    pool.unpin_blocks(pool.get_new_blocks(1), lambda block: None)
    check_pool(pool)
    return pool, queue


def test_after_a_reset_all_blocks_are_free_once(policy: str) -> None:
    pool, queue = used_pool(policy)
    assert pool.reset_prefix_cache()
    check_pool(pool)
    assert sorted(drain(pool)) == list(range(1, 10))


def test_after_a_reset_there_are_no_ghosts(rememberer: str) -> None:
    pool, queue = used_pool(rememberer)
    assert queue.num_ghosts > 0
    pool.reset_prefix_cache()
    queue.sync()
    assert queue.num_ghosts == 0
    ghost_hits = queue.ghost_hits
    for content in range(1, 16):
        ask(queue, content, None)
    assert queue.ghost_hits == ghost_hits


def test_what_was_counted_outlives_a_reset(policy: str) -> None:
    """Counters only grow; Prometheus does not take less."""
    pool, queue = used_pool(policy)
    before = queue.evictions, queue.ghost_hits
    pool.reset_prefix_cache()
    queue.sync()
    assert (queue.evictions, queue.ghost_hits) == before


def test_blocks_that_lost_their_content_are_no_evictions(policy: str) -> None:
    pool, queue = used_pool(policy)
    before = queue.evictions
    pool.reset_prefix_cache()
    drain(pool)
    assert queue.evictions == before


def test_a_reset_that_is_refused_changes_nothing(policy: str) -> None:
    pool, queue = used_pool(policy)
    pool.touch([held := queue.get_all_free_blocks()[-1]])
    before = ids(queue.get_all_free_blocks()), queue.num_ghosts
    assert not pool.reset_prefix_cache()
    queue.sync()
    assert (ids(queue.get_all_free_blocks()), queue.num_ghosts) == before
    pool.free_blocks([held])
    check_pool(pool)


def allocate(pool: BlockPool) -> None:
    hold(pool, 50, 51)


def pin_and_release(pool: BlockPool) -> None:
    pool.touch([pool.blocks[4]])
    pool.free_blocks([pool.blocks[4]])


def pin_and_unpin(pool: BlockPool) -> None:
    pool.touch([pool.blocks[4]])
    pool.unpin_blocks([pool.blocks[4]], lambda block: None)


def look_ahead(pool: BlockPool) -> None:
    assert len(list(pool.free_block_queue.iter_blocks_after(None))) == 9


def admit(pool: BlockPool) -> None:
    ask(pool.free_block_queue, 50, None)


def reset_again(pool: BlockPool) -> None:
    assert pool.reset_prefix_cache()


@pytest.mark.parametrize(
    "first", [allocate, pin_and_release, pin_and_unpin, look_ahead, admit, reset_again]
)
def test_whatever_comes_first_after_a_reset(
    policy: str, first: Callable[[BlockPool], None]
) -> None:
    pool, queue = used_pool(policy)
    pool.reset_prefix_cache()
    first(pool)
    check_pool(pool)
    store(pool, *range(60, 80))
    check_pool(pool)
    if first is not allocate:
        assert sorted(drain(pool)) == list(range(1, 10))


def test_a_cache_that_was_reset_works_as_a_new_one(policy: str) -> None:
    pool, queue = used_pool(policy)
    for _ in range(3):
        pool.reset_prefix_cache()
        before = queue.evictions
        store(pool, *range(30, 45))
        assert queue.evictions - before == 15 - 9
        check_pool(pool)
