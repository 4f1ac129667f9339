# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Looking ahead at the next victims: lazy offloading copies them out in time.

Looking changes nothing, and what is seen comes true when nothing else happens.
"""

import itertools

from real_pool import ask, check_pool, drain, hold, ids, make_pool_with, store
from vllm.v1.core.block_pool import BlockPool

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue


def busy_pool(policy: str, num_blocks: int = 40) -> tuple[BlockPool, PolicyFreeQueue]:
    """Blocks of every kind: hit, pinned, copied, blank, last resort, stale."""
    pool, queue = make_pool_with(policy, num_blocks)
    blocks = store(pool, *range(1, num_blocks - 8))
    for block in blocks[::3]:
        pool.touch([block])
        ask(queue, block.block_id, block)
        pool.free_blocks([block])
    pool.touch(blocks[5:9])
    pool.free_blocks(blocks[5:9])
    store(pool, 2, 3)
    pool.unpin_blocks(pool.get_new_blocks(2), lambda block: None)
    pool.evict_blocks(set(ids(blocks[10:12])))
    check_pool(pool)
    return pool, queue


def test_blocks_go_in_the_order_that_was_told(policy: str) -> None:
    pool, queue = busy_pool(policy)
    told = ids(list(queue.iter_blocks_after(None)))
    assert told == ids(queue.get_all_free_blocks())
    assert drain(pool) == told


def test_several_at_once_go_in_the_order_that_was_told(policy: str) -> None:
    pool, queue = busy_pool(policy)
    told = ids(list(queue.iter_blocks_after(None)))
    got = [ids(pool.get_new_blocks(n)) for n in (1, 7, 16, 3)]
    assert list(itertools.chain(*got)) == told[:27]


def test_looking_ahead_changes_nothing(policy: str) -> None:
    looked_at, queue = busy_pool(policy)
    other, _ = busy_pool(policy)
    for n in (1, 5, 39):
        list(itertools.islice(queue.iter_blocks_after(None), n))
        queue.peek(n)
    check_pool(looked_at)
    assert drain(looked_at) == drain(other)


def test_every_free_block_is_seen_once(policy: str) -> None:
    """Also beyond the first stretch that the queue looks ahead."""
    pool, queue = busy_pool(policy, num_blocks=600)
    seen = ids(list(queue.iter_blocks_after(None)))
    assert len(seen) == len(set(seen)) == pool.get_num_free_blocks() == 599


def test_nothing_is_seen_when_nothing_is_free(policy: str) -> None:
    pool, queue = make_pool_with(policy, 4)
    cursor = pool.get_new_blocks(3)[0]
    assert list(queue.iter_blocks_after(None)) == []
    assert list(queue.iter_blocks_after(cursor)) == []


def test_a_cursor_that_is_in_use_by_now_is_no_end(policy: str) -> None:
    pool, queue = busy_pool(policy)
    cursor = queue.get_all_free_blocks()[3]
    pool.touch([cursor])
    assert ids(list(queue.iter_blocks_after(cursor))) == ids(
        queue.get_all_free_blocks()
    )


def test_a_block_that_was_put_ahead_of_the_cursor_is_not_skipped(policy: str) -> None:
    """An offloader walks on from where it stopped, step after step, and must see
    each block before it is evicted, wherever the policy puts it."""
    pool, queue = make_pool_with(policy, 10)
    for block in store(pool, *range(1, 10)):
        pool.touch([block])
        ask(queue, block.block_id, block)
        pool.free_blocks([block])
    *_, cursor = queue.iter_blocks_after(None)
    new = store(pool, 100)[0]
    assert new.block_id in ids(list(queue.iter_blocks_after(cursor)))


def test_a_consumer_may_stop_early(policy: str) -> None:
    pool, queue = busy_pool(policy)
    first = next(queue.iter_blocks_after(None))
    assert hold(pool, 77)[0] is first
    check_pool(pool)
