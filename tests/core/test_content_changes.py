# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Hashes come, move and go without a word to the free queue.

The queue has to find out by itself, at the latest when it decides.
"""

import pytest
from real_pool import (
    BLOCK_SIZE,
    admit,
    ask,
    check_pool,
    drain,
    find,
    hold,
    ids,
    make_pool_with,
    make_request,
    store,
)


def test_a_victim_whose_hash_was_dropped_is_no_eviction(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    blocks = store(pool, 1, 2, 3, 4, 5)
    pool.evict_blocks(set(ids(blocks[:2])))
    check_pool(pool)
    drain(pool)
    assert queue.evictions == 3


def test_a_hash_dropped_while_free_leaves_no_ghost(rememberer: str) -> None:
    pool, queue = make_pool_with(rememberer, 6)
    blocks = store(pool, 1, 2, 3, 4, 5)
    # Of the youngest: 2Q remembers three of six, the others more.
    pool.evict_blocks({blocks[4].block_id})
    drain(pool)
    ask(queue, 5, None)
    assert queue.ghost_hits == 0
    ask(queue, 4, None)
    assert queue.ghost_hits == 1


def test_a_hash_dropped_while_in_use_leaves_no_ghost(rememberer: str) -> None:
    pool, queue = make_pool_with(rememberer, 6)
    block = store(pool, 1)[0]
    pool.touch([block])
    pool.evict_blocks({block.block_id})
    pool.free_blocks([block])
    check_pool(pool)
    assert ids(queue.get_all_free_blocks())[0] == block.block_id
    drain(pool)
    ask(queue, 1, None)
    assert (queue.evictions, queue.ghost_hits) == (0, 0)


def test_a_block_is_known_by_its_present_content(policy: str) -> None:
    """Released as one, found by nobody, filled anew and released as another."""
    pool, queue = make_pool_with(policy, 3)
    block = store(pool, 1)[0]
    pool.touch([block])
    pool.evict_blocks({block.block_id})
    pool.cache_full_blocks(
        make_request("other", [2] * BLOCK_SIZE), [block], 0, 1, BLOCK_SIZE, 0
    )
    pool.free_blocks([block])
    check_pool(pool)
    drain(pool)
    assert queue.evictions == 1
    if queue.ghost_limit:
        ask(queue, 1, None)
        assert queue.ghost_hits == 0
        ask(queue, 2, None)
        assert queue.ghost_hits == 1


def test_a_partial_block_becomes_a_full_one_while_in_use(policy: str) -> None:
    pool, queue = make_pool_with(policy, 4)
    request = make_request("promoted", [7] * (2 * BLOCK_SIZE))
    block = pool.get_new_blocks(1)[0]
    pool.cache_partial_block(request, block, BLOCK_SIZE, 0, 2 * BLOCK_SIZE)
    pool.free_blocks([block])
    check_pool(pool)
    pool.touch([block])
    pool.cache_full_blocks(request, [block], 0, 1, 2 * BLOCK_SIZE, 0)
    pool.free_blocks([block])
    check_pool(pool)
    drain(pool)
    assert queue.evictions == 1
    # LeCaR remembers nothing of an only block: its experts agree.
    if queue.ghost_limit and policy != "lecar":
        partial, full = request.block_hashes
        admit(queue, [(0, [partial], [], 0)])
        assert queue.ghost_hits == 0
        admit(queue, [(0, [full], [], 0)])
        assert queue.ghost_hits == 1


def test_a_content_that_moved_is_evicted_where_it_went(policy: str) -> None:
    """Copy on write: a private copy takes over the hashes of a block in use."""
    pool, queue = make_pool_with(policy, 6)
    source = store(pool, 1)[0]
    pool.touch([source])
    target = pool.get_new_blocks(1)[0]
    pool.move_block_hashes(source, target)
    pool.free_blocks([target])
    pool.free_blocks([source])
    check_pool(pool)
    assert find(pool, 1) is target
    order = drain(pool)
    assert order[0] == source.block_id and order[-1] == target.block_id
    assert queue.evictions == 1


def test_a_content_that_moved_back_and_forth(policy: str) -> None:
    pool, queue = make_pool_with(policy, 4)
    here, there = pool.get_new_blocks(2)
    pool.free_blocks([here])
    here = hold(pool, 1)[0]
    for _ in range(3):
        pool.move_block_hashes(here, there)
        pool.free_blocks([there])
        check_pool(pool)
        pool.touch([there])
        here, there = there, here
    pool.free_blocks([here])
    pool.free_blocks([there])
    check_pool(pool)
    drain(pool)
    assert queue.evictions == 1


def test_a_stale_block_does_not_hide_a_new_one(policy: str) -> None:
    """The hash of a free block is dropped, and its content computed again."""
    pool, queue = make_pool_with(policy, 6)
    stale = store(pool, 1, 2)[0]
    pool.evict_blocks({stale.block_id})
    fresh = store(pool, 1)[0]
    check_pool(pool)
    assert find(pool, 1) is fresh
    pool.touch([fresh])
    pool.free_blocks([fresh])
    check_pool(pool)
    assert sorted(drain(pool)) == [1, 2, 3, 4, 5]
    check_pool(pool)
    assert queue.evictions == 2
    assert queue.failure == ""


@pytest.mark.timeout(30)
def test_a_stale_block_may_outlive_the_new_one(policy: str) -> None:
    """Then its content is a ghost while the stale block still stands in a queue."""
    pool, queue = make_pool_with(policy, 6)
    for content in range(1, 40):
        # One that is hit stays longer than those that are not.
        stale = store(pool, content)[0]
        pool.touch([stale])
        ask(queue, content, stale)
        pool.free_blocks([stale])
        pool.evict_blocks({stale.block_id})
        store(pool, content, *range(100 + content, 104 + content))
        check_pool(pool)
        ask(queue, content, find(pool, content))
        store(pool, content, *range(200 + content, 203 + content))
        check_pool(pool)
    assert queue.failure == ""


def test_contents_of_two_groups_are_two_contents(policy: str) -> None:
    pool, queue = make_pool_with(policy, 8)
    full = store(pool, 1)[0]
    window = store(pool, 1, group=1)[0]
    check_pool(pool)
    assert find(pool, 1) is full and find(pool, 1, group=1) is window
    assert ids(queue.get_all_free_blocks())[-2:] == ids([full, window])  # no copies
    drain(pool)
    assert queue.evictions == 2


def test_a_ghost_of_one_group_is_not_found_by_another(rememberer: str) -> None:
    pool, queue = make_pool_with(rememberer, 5)
    store(pool, 1, 2, 3, 4, group=1)
    drain(pool)
    ask(queue, 4, None, group=0)
    assert queue.ghost_hits == 0
    ask(queue, 4, None, group=1)
    assert queue.ghost_hits == 1


@pytest.mark.parametrize("crediting", ["s3fifo", "sieve", "arc"])
def test_a_pin_is_no_hit(crediting: str) -> None:
    """Connectors and copies touch and release a block without using it."""
    for hit in (False, True):
        pool, queue = make_pool_with(crediting, 8)
        old = store(pool, 1)[0]
        for _ in range(4):
            pool.touch([old])
            if hit:
                ask(queue, 1, old)
            pool.free_blocks([old])
        new = store(pool, 2, 3, 4, 5, 6, 7)
        order = drain(pool)
        went_first = order.index(old.block_id) < order.index(new[0].block_id)
        assert went_first is not hit
