# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy in the live queue of upstream's real block pool, with a policy's calls.

So the same tests run on a policy by itself and on one that gets its events from
`BlockPool`. A slot is a block id less one, because block 0 is the null block. Each
call does to the pool what makes the queue send that event to the policy.
"""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue, install

BLOCK_SIZE = 16  # tokens


class LivePolicy:
    """Starts with all blocks in use and without content.

    Args:
        name: A registered policy.
        num_slots: Blocks besides the null block.
        parameters: Of the policy.

    """

    def __init__(
        self, name: str, num_slots: int, parameters: dict[str, Any] | None = None
    ):
        self.num_slots = num_slots
        self.pool = BlockPool(num_slots + 1, True, BLOCK_SIZE)
        queue = install(self.pool, name, parameters, replace_lru=True)
        assert queue is not None
        self.queue: PolicyFreeQueue = queue
        self.pool.get_new_blocks(num_slots)

    def fill(self, slot: int, key: int) -> None:
        """A request in need of the block computes it; others can hit it from now."""
        request: Any = SimpleNamespace(block_hashes=[_hash(key)])
        blocks = [self._block(slot)]
        self.pool.cache_full_blocks(request, blocks, 0, 1, BLOCK_SIZE, 0)

    # ---- Order. ----

    def insert(self, slot: int, key: int) -> None:
        if self._block(slot).block_hash is None:
            self.fill(slot, key)
        self.pool.free_blocks([self._block(slot)])

    def reinsert(self, slot: int) -> None:
        self.pool.free_blocks([self._block(slot)])

    def take(self, slot: int) -> None:
        self.pool.touch([self._block(slot)])

    def victim(self) -> int | None:
        if self.pool.get_num_free_blocks() == 0:
            return None
        (block,) = self.pool.get_new_blocks(1)
        assert block.ref_cnt == 1 and not block.is_null and block.block_hash is None
        return block.block_id - 1

    def forget(self, slot: int) -> None:
        """Without content a block is reused first: so take it again at once."""
        block = self._block(slot)
        if block.ref_cnt == 0:
            self.pool.touch([block])
        self.pool.evict_blocks({block.block_id})
        self.pool.free_blocks([block])
        assert self.victim() == slot

    def disown(self, key: int) -> None:
        """The queue does this itself when a victim turns out to be empty."""

    def peek(self, n: int) -> list[int]:
        return [block.block_id - 1 for block in self.queue.peek(n)]

    def clear(self) -> None:
        in_use = [b for b in self.pool.blocks if b.ref_cnt > 0 and not b.is_null]
        self.pool.free_blocks(in_use)
        assert self.pool.reset_prefix_cache()
        self.pool.get_new_blocks(self.num_slots)

    def check(self) -> None:
        """Each free block once, none that is in use, never the null block."""
        self.queue.check()
        free = Counter(block.block_id for block in self.queue.get_all_free_blocks())
        expected = (b.block_id for b in self.pool.blocks if b.ref_cnt == 0)
        assert free == Counter(expected) - Counter([0])
        assert self.pool.get_num_free_blocks() == free.total()
        assert not self.queue.failure

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def num_ghosts(self) -> int:
        return self.queue.num_ghosts

    @property
    def ghost_limit(self) -> int:
        return self.queue.ghost_limit

    @property
    def ghost_hits(self) -> int:
        return self.queue.ghost_hits

    @property
    def bytes(self) -> int:
        return self.queue.bytes

    def model(self) -> list[float]:
        return self.queue.model()

    def load_model(self, model: list[float]) -> bool:
        return self.queue.load_model(model)

    # ---- Observer. ----

    def admit(
        self, serial: int, keys: Sequence[int], slots: Sequence[int | None], now: float
    ) -> None:
        hits = [self._block(slot) for slot in slots if slot is not None]
        groups: list[Any] = [(0, [_hash(key) for key in keys], hits, len(hits))]
        if None in slots[: len(hits)]:  # hits need not be a prefix here
            groups = []
            for key, slot in zip(keys, slots, strict=True):
                blocks = [] if slot is None else [self._block(slot)]
                groups.append((0, [_hash(key)], blocks, len(blocks)))
        tokens = len(keys) * BLOCK_SIZE
        self.queue.admit(serial, groups, tokens, len(keys), now)

    def finish(self, serial: int, keys: Sequence[int], now: float) -> None:
        self.queue.finish(serial, [(0, [_hash(key) for key in keys])], now)

    def _block(self, slot: int) -> KVCacheBlock:
        return self.pool.blocks[slot + 1]


def _hash(key: int) -> BlockHash:
    # The queue's key is in the first bytes of a hash; not zero, which is no key.
    return BlockHash(key.to_bytes(8, "little") + b"\1" * 24)
