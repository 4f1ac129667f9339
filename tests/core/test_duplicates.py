# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""One content in several blocks: requests computed it at the same time, or had to
compute the last block of their prompt again.

A second copy is the best victim there is, under every policy but `lru`, which has
upstream's order. What is resident is what counts: evicting a copy loses nothing.
"""

import pytest
from real_pool import (
    ask,
    check_pool,
    drain,
    find,
    hold,
    ids,
    make_pool,
    make_pool_with,
    store,
)


def test_a_copy_goes_before_everything_that_is_unique(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 8)
    store(pool, 1, 2, 3, 4)
    copy = store(pool, 3)[0]
    pool.get_new_blocks(2)  # those that were never filled
    assert pool.get_new_blocks(1)[0] is copy
    assert all(find(pool, content) for content in (1, 2, 3, 4))
    check_pool(pool)


def test_a_copy_goes_after_blocks_without_content(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 8)
    store(pool, 1)
    blank = pool.get_new_blocks(1)
    copy = store(pool, 1)
    pool.free_blocks(blank)
    order = ids(queue.get_all_free_blocks())
    assert order.index(blank[0].block_id) < order.index(copy[0].block_id)


def test_of_copies_that_are_all_free_one_is_kept(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 8)
    one, two, three = hold(pool, 1), hold(pool, 1), hold(pool, 1)
    for copies in (two, three, one):
        pool.free_blocks(copies)
        check_pool(pool)
    store(pool, 2, 3, 4, 5)
    pool.get_new_blocks(2)
    kept = find(pool, 1)
    assert kept is not None
    check_pool(pool)
    # The last copy is a block like any other.
    assert kept.block_id in drain(pool)
    assert queue.evictions == 7
    check_pool(pool)


def test_a_copy_is_kept_when_the_other_lost_its_hash(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 6)
    first = store(pool, 1)[0]
    copy = store(pool, 1)[0]
    store(pool, 2, 3, 4)
    pool.evict_blocks({first.block_id})
    check_pool(pool)
    order = ids(queue.get_all_free_blocks())
    assert order[0] != copy.block_id  # it is the only one by now
    assert drain(pool) == order


def test_of_copies_that_are_chosen_at_once_one_is_kept(chooser: str) -> None:
    """Their hashes are dropped only after all of a request's blocks are chosen."""
    pool, queue = make_pool_with(chooser, 9)
    for copy in [hold(pool, 1)[0] for _ in range(4)]:
        pool.free_blocks([copy])
    store(pool, 2, 3, 4, 5)
    pool.get_new_blocks(4)
    assert find(pool, 1) is not None
    check_pool(pool)


def test_a_copy_is_kept_when_the_other_was_filled_anew(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 4)
    first = hold(pool, 1)[0]
    copy = store(pool, 1)[0]
    pool.evict_blocks({first.block_id})
    store(pool, 2)
    check_pool(pool)
    pool.free_blocks([first])
    assert pool.get_new_blocks(1)[0] is first  # without content
    assert find(pool, 1) is copy
    check_pool(pool)


def test_a_copy_in_use_lets_the_free_one_go(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 5)
    held = hold(pool, 1)[0]
    free = store(pool, 1)[0]
    store(pool, 2, 3)
    assert pool.get_new_blocks(1)[0] is free
    assert find(pool, 1) is held
    pool.free_blocks([held])
    check_pool(pool)
    assert sorted(drain(pool)) == sorted({1, 2, 3, 4} - {free.block_id})


def test_a_copy_that_is_hit_comes_back_as_a_copy(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 6)
    store(pool, 1, 2)
    copy = store(pool, 1)[0]
    pool.touch([copy])
    ask(queue, 1, copy)
    check_pool(pool)
    pool.free_blocks([copy])
    pool.get_new_blocks(2)
    assert pool.get_new_blocks(1)[0] is copy


def test_the_order_of_copies_is_told_ahead(chooser: str) -> None:
    """Of three copies, all free, two go early and one late; not three early."""
    pool, queue = make_pool_with(chooser, 8)
    copies = [hold(pool, 1)[0] for _ in range(3)]
    for copy in copies:
        pool.free_blocks([copy])
    store(pool, 2, 3, 4, 5)
    order = ids(queue.get_all_free_blocks())
    assert set(order[:2]) < set(ids(copies))
    assert drain(pool) == order


@pytest.mark.parametrize("num_copies", [1, 5])
def test_lru_keeps_copies_in_upstreams_order(num_copies: int) -> None:
    ours, _ = make_pool_with("lru", 12)
    upstream = make_pool(12)
    for pool in (ours, upstream):
        store(pool, 1, 2, *[3] * num_copies, 1, 4)
        pool.touch([pool.blocks[3]])
        pool.free_blocks([pool.blocks[3]])
    assert drain(ours) == drain(upstream)


def test_a_copy_leaves_no_ghost(rememberer: str) -> None:
    pool, queue = make_pool_with(rememberer, 4)
    store(pool, 1, 2)
    store(pool, 1)
    pool.get_new_blocks(1)
    ask(queue, 1, find(pool, 1))
    assert (queue.ghost_hits, queue.num_ghosts) == (0, 0)


def test_all_copies_gone_at_once_leave_one_ghost(rememberer: str) -> None:
    pool, queue = make_pool_with(rememberer, 4)
    store(pool, 1, 2)
    store(pool, 1)
    pool.get_new_blocks(3)
    ask(queue, 1, None)
    ask(queue, 2, None)
    assert (queue.ghost_hits, queue.num_ghosts) == (2, 2)


def test_a_content_that_is_resident_elsewhere_leaves_no_ghost(rememberer: str) -> None:
    """A request recomputed the last block of its prompt and still holds the copy."""
    pool, queue = make_pool_with(rememberer, 5)
    store(pool, 1, 2)
    copy = hold(pool, 1)[0]
    hold(pool, 8)
    drain(pool)
    assert find(pool, 1) is copy
    assert queue.num_ghosts == 1  # that of 2
    pool.free_blocks([copy])
    check_pool(pool)
