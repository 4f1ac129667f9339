# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Upstream's free-queue interface over a policy.

The work is in C++ (`csrc/eviction/live_queue.h`), a call for a whole list of
blocks; here is what is rare or easier said in Python.
"""

from collections.abc import Iterator
from typing import Any

from vllm._eviction_C import HoleRule, LiveQueue, Policy, RecomputeCost
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock

from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, get_policy


class PolicyFreeQueue(LiveQueue):
    """The free blocks of a pool, ordered by an eviction policy.

    Drop-in for upstream's `FreeKVCacheBlockQueue`: what comes by `prepend_n` is
    reused first, what comes by `append_n` belongs to the policy or, if it has no
    hash, is the last resort.

    Args:
        block_pool: Its free blocks are taken over in their order.
        policy: A policy without blocks, made for as many slots as the pool has.
        follow_upstream: Order every block as upstream's queue does, spare and
            hash-less ones too; for LRU only.
        cost: What a block costs to recompute, for a policy that weighs it. By default
            all cost the same.

    """

    def __init__(
        self,
        block_pool: BlockPool,
        policy: Policy,
        follow_upstream: bool = False,
        cost: RecomputeCost | None = None,
    ):
        super().__init__(
            block_pool.blocks,
            block_pool,
            policy,
            follow_upstream,
            RecomputeCost() if cost is None else cost,
        )
        self.fill(block_pool.free_block_queue.get_all_free_blocks())

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks in the order of their reuse."""
        return self.peek(len(self))

    def iter_blocks_after(self, cursor: KVCacheBlock | None) -> Iterator[KVCacheBlock]:
        """Free blocks in the order of their reuse.

        Each walk starts at the front, wherever the last one stopped: in upstream's
        order nothing new comes to stand before the cursor, in a policy's it does,
        and would be evicted unseen. Callers skip what they have seen and stop
        after as many blocks as may be needed soon. The queue must not change while
        it is iterated over.

        Args:
            cursor: The block that was seen last; not used.

        """
        seen = 0
        ahead = 64  # in growing steps, because callers stop early
        while seen < len(self):
            blocks = self.peek(ahead)
            yield from blocks[seen:]
            seen = len(blocks)
            ahead *= 4


def install(
    block_pool: BlockPool,
    policy_name: str,
    config: dict[str, Any] | None = None,
    *,
    replace_lru: bool = False,
    cost: RecomputeCost | None = None,
    holes: HoleRule | None = None,
) -> PolicyFreeQueue | None:
    """Put a policy in the place of a pool's free queue.

    Args:
        block_pool: The engine's pool, in any state.
        policy_name: A registered policy.
        config: Its parameters.
        replace_lru: Also for `lru`, whose queue otherwise stays upstream's own
            object; the C++ LRU chooses the same blocks.
        cost: As of `PolicyFreeQueue`.
        holes: As of `parse_config`.

    Returns:
        The new queue, or None where the pool keeps upstream's: under `lru`, and
        without prefix caching, where there is nothing to choose.

    Raises:
        ValueError: The name or the parameters are not valid.

    """
    parameters = parse_config(policy_name, config or {}, holes)
    is_lru = policy_name == DEFAULT_POLICY
    if not block_pool.enable_caching or (is_lru and not replace_lru):
        return None
    policy = get_policy(policy_name).make(block_pool.num_gpu_blocks, parameters)
    queue = PolicyFreeQueue(block_pool, policy, is_lru, cost)
    block_pool.free_block_queue = queue
    return queue
