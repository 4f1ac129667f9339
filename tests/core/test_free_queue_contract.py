# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What upstream's code expects of its free queue, under every policy."""

import gc
import weakref

import pytest
from real_pool import (
    check_pool,
    drain,
    find,
    hold,
    ids,
    make_pool,
    make_pool_with,
    store,
)
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue, install


def test_block_zero_is_the_null_block_and_never_free(policy: str) -> None:
    pool, queue = make_pool_with(policy, 8)
    assert pool.null_block.block_id == 0 and pool.null_block.is_null
    pool.free_blocks([pool.null_block])
    pool.touch([pool.null_block])
    check_pool(pool)
    assert sorted(drain(pool)) == list(range(1, 8))


def test_never_filled_blocks_go_in_order_of_their_ids(policy: str) -> None:
    pool, _ = make_pool_with(policy, 8)
    assert drain(pool) == [1, 2, 3, 4, 5, 6, 7]


def test_blocks_without_content_are_reused_before_all_others(policy: str) -> None:
    pool, queue = make_pool_with(policy, 10)
    store(pool, 1, 2, 3)
    blank = pool.get_new_blocks(2)
    pool.free_blocks(blank)
    assert ids(queue.get_all_free_blocks())[:2] == ids(blank)


def test_of_lists_without_content_the_last_released_is_reused_first(
    policy: str,
) -> None:
    pool, queue = make_pool_with(policy, 10)
    a, b, c, d, e = pool.get_new_blocks(5)
    for released in ([a, b], [c], [], [d, e]):
        pool.free_blocks(released)
    assert drain(pool)[:5] == ids([d, e, c, a, b])


def test_unpinned_blocks_without_hash_are_the_last_resort(chooser: str) -> None:
    pool, queue = make_pool_with(chooser, 8)
    kept = pool.get_new_blocks(2)
    reused: list[int] = []
    pool.unpin_blocks(kept, lambda block: reused.append(block.block_id))
    store(pool, 1, 2, 3, 4, 5)
    check_pool(pool)
    pool.get_new_blocks(5)
    assert reused == []  # everything else went first
    pool.get_new_blocks(2)
    assert reused == ids(kept)


def test_an_unpinned_block_with_content_belongs_to_the_policy(chooser: str) -> None:
    pool, _ = make_pool_with(chooser, 6)
    pool.unpin_blocks(hold(pool, 1), lambda block: None)
    store(pool, 2, 3, 4, 5)
    assert drain(pool)[0] == 1


def test_a_last_resort_can_be_taken_back(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    kept = pool.get_new_blocks(3)
    pool.unpin_blocks(kept, lambda block: None)
    pool.touch([kept[1]])
    check_pool(pool)
    pool.free_blocks([kept[1]])
    assert ids(queue.get_all_free_blocks())[0] == kept[1].block_id


@pytest.mark.parametrize("in_use", [0, 3])
def test_all_that_is_free_can_be_had_at_once(policy: str, in_use: int) -> None:
    pool, _ = make_pool_with(policy, 12)
    store(pool, *range(1, 7))
    pool.unpin_blocks(pool.get_new_blocks(2), lambda block: None)
    store(pool, 20, 20)  # two copies
    hold(pool, *range(30, 30 + in_use))
    blocks = pool.get_new_blocks(11 - in_use)
    assert len(set(ids(blocks))) == 11 - in_use
    assert pool.get_num_free_blocks() == 0
    check_pool(pool)


def test_one_more_than_is_free_is_refused_and_changes_nothing(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    store(pool, 1, 2, 3)
    before = ids(queue.get_all_free_blocks())
    with pytest.raises(ValueError, match="6"):
        pool.get_new_blocks(6)
    with pytest.raises(ValueError, match="6"):
        queue.popleft_n(6)
    assert ids(queue.get_all_free_blocks()) == before
    check_pool(pool)


def test_nothing_can_be_had_for_nothing(policy: str) -> None:
    pool, queue = make_pool_with(policy, 4)
    assert queue.popleft_n(0) == []
    queue.append_n([])
    queue.prepend_n([])
    check_pool(pool)


def test_an_empty_queue_says_so_as_upstream_does(policy: str) -> None:
    pool, queue = make_pool_with(policy, 4)
    drain(pool)
    upstream = FreeKVCacheBlockQueue([])
    for empty in (queue, upstream):
        with pytest.raises(ValueError, match="No free blocks available"):
            empty.popleft()
    assert queue.num_free_blocks == 0


def test_removing_a_block_that_is_not_free_is_an_error_as_upstream(
    policy: str,
) -> None:
    pool, queue = make_pool_with(policy, 6)
    held = hold(pool, 1)[0]
    upstream = make_pool(6)
    for free_queue, block in (
        (queue, held),
        (upstream.free_block_queue, upstream.get_new_blocks(1)[0]),
    ):
        with pytest.raises(RuntimeError, match="remove"):
            free_queue.remove(block)
    check_pool(pool)


def test_the_null_block_cannot_be_removed(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    with pytest.raises(RuntimeError):
        queue.remove(pool.null_block)


def test_a_block_that_is_free_cannot_be_freed_again(policy: str) -> None:
    """Upstream would tie a knot into its list; a loud error is better."""
    pool, queue = make_pool_with(policy, 6)
    block = store(pool, 1)[0]
    for add in (
        queue.append,
        lambda b: queue.append_n([b]),
        lambda b: queue.prepend_n([b]),
    ):
        with pytest.raises(RuntimeError, match="free already"):
            add(block)
    check_pool(pool)


def test_the_count_of_free_blocks_can_be_assigned(policy: str) -> None:
    """Upstream's tests make a pool look full that way."""
    pool, queue = make_pool_with(policy, 6)
    queue.num_free_blocks = 0
    with pytest.raises(ValueError):
        pool.get_new_blocks(1)
    queue.num_free_blocks = 5
    assert len(pool.get_new_blocks(5)) == 5


def test_single_blocks_come_and_go_like_lists(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    first, second = queue.popleft(), queue.popleft()
    queue.append(first)
    queue.append(second)
    assert queue.num_free_blocks == 5
    assert drain(pool)[-2:] == ids([first, second])


def test_lookups_in_the_middle_take_the_right_block(policy: str) -> None:
    pool, queue = make_pool_with(policy, 12)
    blocks = store(pool, *range(1, 12))
    pool.touch([blocks[5], blocks[0], blocks[10]])
    check_pool(pool)
    taken = {blocks[i].block_id for i in (0, 5, 10)}
    assert taken.isdisjoint(drain(pool))


def test_a_block_used_twice_is_free_only_when_both_let_go(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6)
    block = store(pool, 1)[0]
    pool.touch([block])
    pool.touch([block])
    pool.free_blocks([block])
    assert block not in queue
    pool.free_blocks([block])
    assert block in queue
    check_pool(pool)


def test_a_released_request_goes_tail_first(policy: str) -> None:
    pool, _ = make_pool_with(policy, 5)
    blocks = hold(pool, 1, 2, 3, 4)
    pool.free_blocks(reversed(blocks))
    assert drain(pool) == ids(blocks[::-1])


def test_blocks_are_compared_by_identity(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataclass compares field by field: slow, and wrong for equal blocks."""

    def refuse(self: KVCacheBlock, other: object) -> bool:
        raise AssertionError("two blocks were compared by value")

    pool, queue = make_pool_with(policy, 10)
    monkeypatch.setattr(KVCacheBlock, "__eq__", refuse)
    blocks = store(pool, 1, 2, 3, 3)
    pool.touch(blocks[:1])
    pool.free_blocks(blocks[:1])
    pool.evict_blocks({blocks[1].block_id})
    assert blocks[1] in queue
    assert list(queue.iter_blocks_after(blocks[2]))
    check_pool(pool)
    pool.reset_prefix_cache()
    drain(pool)
    check_pool(pool)


def test_without_prefix_caching_upstreams_queue_stays(chooser: str) -> None:
    pool = make_pool(6, enable_caching=False)
    before = pool.free_block_queue
    assert install(pool, chooser, {}) is None
    assert pool.free_block_queue is before
    first, second = pool.get_new_blocks(2)
    pool.free_blocks([first])
    pool.free_blocks([second])
    assert ids(before.get_all_free_blocks()) == [2, 1, 3, 4, 5]


def test_lru_leaves_upstreams_object_in_place() -> None:
    pool = make_pool(6)
    before = pool.free_block_queue
    assert install(pool, "lru", {}) is None
    assert pool.free_block_queue is before


def test_a_pool_can_be_taken_over_at_any_time(policy: str) -> None:
    pool = make_pool(12)
    store(pool, 1, 2, 3)
    held = hold(pool, 4, 5)
    pool.free_blocks(pool.get_new_blocks(2))
    order = ids(pool.free_block_queue.get_all_free_blocks())
    assert install(pool, policy, {}, replace_lru=True) is not None
    check_pool(pool)
    pool.free_blocks(held)
    check_pool(pool)
    assert find(pool, 1) is not None
    assert drain(pool)[: len(order)] == order


def test_lru_takes_over_upstreams_order_as_it_is() -> None:
    """Blocks without content are not only in front: some lost their hash since."""
    pool = make_pool(12)
    lost = store(pool, 1, 2, 3)[1]
    pool.unpin_blocks(pool.get_new_blocks(2), lambda block: None)
    store(pool, 4)
    pool.evict_blocks({lost.block_id})
    order = ids(pool.free_block_queue.get_all_free_blocks())
    install(pool, "lru", {}, replace_lru=True)
    check_pool(pool)
    assert ids(pool.free_block_queue.get_all_free_blocks()) == order
    assert drain(pool) == order


def test_blocks_of_another_pool_go_back_to_their_own(policy: str) -> None:
    """Host pools of offloading share the code, not the policy."""
    pool, _ = make_pool_with(policy, 6)
    host = make_pool(6)
    mixed = [hold(pool, 1)[0], hold(host, 2)[0], hold(pool, 3)[0]]
    pool.free_blocks(mixed)
    check_pool(pool)
    check_pool(host)
    assert not isinstance(host.free_block_queue, PolicyFreeQueue)
    assert host.get_num_free_blocks() == 5


def test_the_queue_keeps_no_pool_alive(policy: str) -> None:
    pool, _ = make_pool_with(policy, 6)
    store(pool, 1, 2)
    watch = weakref.ref(pool)
    del pool, _
    gc.collect()
    assert watch() is None


def test_every_eviction_is_counted_and_reported_once(policy: str) -> None:
    pool, queue = make_pool_with(policy, 6, events=True)
    store(pool, 1, 2, 3, 4, 5)
    pool.take_events()
    pool.get_new_blocks(3)
    removed = [type(event).__name__ for event in pool.take_events()]
    assert removed == ["BlockRemoved"] * 3
    assert queue.evictions == 3
