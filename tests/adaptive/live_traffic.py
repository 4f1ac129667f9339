# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Requests on upstream's real block pool, with a live queue and shadows beside it.

What the scheduler does to the pool, and tells the queue, in its order; without the
scheduler, so that thousands of states can be tried.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from vllm._eviction_C import RecomputeCost, ShadowHost, make_policy
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock

from tests.adaptive.request_events import CONVERSATIONS, Event, block_keys
from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

BLOCK_SIZE = 16  # tokens


class LiveTraffic:
    """A pool in which the first candidate is live.

    Args:
        candidates: Native policies; each has a shadow.
        num_blocks: Blocks that can hold something, here and in the shadows.
        threaded: As of `ShadowHost`.
        cost: Of a block, here and in the shadows.

    """

    def __init__(
        self,
        candidates: list[str],
        num_blocks: int,
        *,
        threaded: bool = False,
        cost: RecomputeCost | None = None,
    ):
        self.candidates = candidates
        self.num_blocks = num_blocks
        self.pool = BlockPool(num_blocks + 1, True, BLOCK_SIZE)
        self.host = ShadowHost(
            num_blocks,
            BLOCK_SIZE,
            [(name, {}) for name in candidates],
            threaded=threaded,
            cost=cost or RecomputeCost(),
        )
        policy = make_policy(candidates[0], num_blocks + 1)
        self.queue = PolicyFreeQueue(self.pool, policy, cost=cost)
        self.queue.attach(self.host)
        self.pool.free_block_queue = self.queue
        # serial -> conversation, length, blocks
        self.running: dict[int, tuple[int, int, list[KVCacheBlock]]] = {}
        self.pinned: list[KVCacheBlock] = []
        self.hits = 0
        self.touched: set[int] = set()
        """Keys that anything happened to; for a test to clear and to look at."""
        self.copied: set[int] = set()
        """Keys that two blocks had at a time; likewise."""
        self._serial = 0
        self._released = [0] * (num_blocks + 1)
        self._clock = 0

    def step(self, event: Event) -> None:
        getattr(self, event.kind)(event)

    # ---- What requests do. ----

    def admit(self, event: Event) -> None:
        conversation, length = event.which % CONVERSATIONS, event.length
        keys = block_keys(conversation, length)
        hashes = [hash_of(key) for key in keys]
        # A prompt ends within a block, or with one, which is then computed again.
        tokens = length * BLOCK_SIZE + event.extra % 2 * 5
        hits: list[KVCacheBlock] = []
        while len(hits) < (tokens - 1) // BLOCK_SIZE:
            found = self.pool.get_cached_block(hashes[len(hits)], [0])
            if found is None:
                break
            hits += found
        missing = -(-tokens // BLOCK_SIZE) - len(hits)
        evictable = sum(block.ref_cnt == 0 for block in hits)
        if missing > self.pool.get_num_free_blocks() - evictable:
            return
        self.pool.touch(hits)
        blocks = hits + self.pool.get_new_blocks(missing)
        self._cache(hashes, blocks, len(hits), length)
        self._serial += 1
        self.queue.admit(
            self._serial, [(0, hashes, blocks, len(hits))], tokens, len(blocks), 0.0
        )
        self.running[self._serial] = (conversation, length, blocks)
        self.hits += len(hits)
        self.touched.update(keys)

    def grow(self, event: Event) -> None:
        """A request fills a block of output, and needs the next."""
        if not self.running or self.pool.get_num_free_blocks() < 2:
            return
        serial = self._pick(event)
        conversation, length, blocks = self.running[serial]
        while len(blocks) < length + 2:
            blocks += self.pool.get_new_blocks(1)
        keys = block_keys(conversation, length + 1)
        self._cache([hash_of(key) for key in keys], blocks, length, length + 1)
        self.running[serial] = (conversation, length + 1, blocks)
        self.queue.grow(serial, len(blocks))
        self.touched.update(keys)

    def finish(self, event: Event) -> None:
        if not self.running:
            return
        serial = self._pick(event)
        conversation, length, blocks = self.running.pop(serial)
        keys = block_keys(conversation, length)
        self.queue.finish(serial, [(0, [hash_of(key) for key in keys])], 0.0)
        self._free(blocks[::-1])
        self.touched.update(keys)

    def reset(self, event: Event) -> None:
        """As in vLLM, only when nothing is in use."""
        while self.running:
            self.finish(event)
        self.unpin(event)
        assert self.pool.reset_prefix_cache()
        self.queue.sync()

    # ---- What happens to blocks besides. ----

    def pin(self, event: Event) -> None:
        """A connector holds a block that no request holds."""
        free = self._cached(free=True)
        if free:
            block = free[event.which % len(free)]
            self.pool.touch([block])
            self.pinned.append(block)
            self.touched.add(self.key_of(block))

    def unpin(self, event: Event) -> None:
        for block in self.pinned:
            self.touched.add(self.key_of(block))
        self._free(self.pinned)
        self.pinned = []

    def lose(self, event: Event) -> None:
        """A block loses its hash, free or not, without the queue being told."""
        cached = self._cached()
        if cached:
            block = cached[event.which % len(cached)]
            self.touched.add(self.key_of(block))
            self.pool.evict_blocks({block.block_id})

    # ---- What must hold. ----

    def check(self) -> None:
        """Each block is free exactly once or in use, and all lists are sound."""
        self.queue.check()
        free = Counter(block.block_id for block in self.queue.get_all_free_blocks())
        unused = Counter(b.block_id for b in self.pool.blocks[1:] if b.ref_cnt == 0)
        assert free == unused
        assert self.queue.num_free_blocks == unused.total()
        assert not self.queue.failure and not self.host.failure

    def order(self) -> list[int]:
        """Keys of the free blocks that have one, the next to be evicted first."""
        blocks = self.queue.get_all_free_blocks()
        return [self.key_of(block) for block in blocks if block.block_hash is not None]

    def released(self) -> list[KVCacheBlock]:
        """Blocks in the order in which they were released last."""
        return sorted(
            self.pool.blocks[1:], key=lambda block: self._released[block.block_id]
        )

    def evict_all(self) -> list[int]:
        """Allocates all free blocks; returns the keys that they had, in order."""
        keys = self.order()
        self.pool.get_new_blocks(self.pool.get_num_free_blocks())
        return keys

    def _free(self, blocks: list[KVCacheBlock]) -> None:
        for block in blocks:
            self._clock += 1
            self._released[block.block_id] = self._clock
        self.pool.free_blocks(blocks)

    def _pick(self, event: Event) -> int:
        return list(self.running)[event.which % len(self.running)]

    def _cached(self, free: bool = False) -> list[KVCacheBlock]:
        return [
            block
            for block in self.pool.blocks[1:]
            if block.block_hash is not None and not (free and block.ref_cnt > 0)
        ]

    def _cache(
        self, hashes: list[BlockHash], blocks: list[KVCacheBlock], start: int, end: int
    ) -> None:
        request: Any = SimpleNamespace(block_hashes=hashes)
        self.pool.cache_full_blocks(request, blocks, start, end, BLOCK_SIZE, 0)
        keys = Counter(self.key_of(block) for block in self._cached())
        self.copied.update(key for key, times in keys.items() if times > 1)

    def key_of(self, block: KVCacheBlock) -> int:
        return int.from_bytes((block.block_hash or b"")[:8], "little")


def hash_of(key: int) -> BlockHash:
    # The first eight bytes of a hash are the queue's key.
    return BlockHash(key.to_bytes(8, "little") + b"\1" * 24)
