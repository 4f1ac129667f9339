# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A router that follows an engine's KV events and knows what is resident in it.

It counts copies: upstream reports each block that is stored or removed, and a
content is resident as long as one of its copies is.
"""

from collections import Counter
from collections.abc import Iterable

from vllm.distributed.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
    KVEventBatch,
)
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import (
    KVCacheBlock,
    get_block_hash,
    get_group_id,
    maybe_convert_block_hash,
)


class EventConsumer:
    """Knows the number of copies of each (hash, group), from events alone."""

    def __init__(self) -> None:
        self.copies: Counter = Counter()

    def publish(self, batch: KVEventBatch) -> None:
        """What a scheduler calls, in the place of its publisher."""
        self.follow(batch.events)

    def follow(self, events: Iterable[KVCacheEvent]) -> None:
        """Apply the events in their order."""
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self.copies.clear()
            elif isinstance(event, BlockStored):
                self.copies.update(
                    (hash_, event.group_idx) for hash_ in event.block_hashes
                )
            else:
                assert isinstance(event, BlockRemoved)
                for hash_ in event.block_hashes:
                    self.copies[hash_, event.group_idx] -= 1
                    assert self.copies[hash_, event.group_idx] >= 0, "removed twice"


def resident_in(pool: BlockPool) -> Counter:
    """What a request could find, from the pool itself."""
    copies: Counter = Counter()
    for key, blocks in pool.cached_block_hash_to_block._cache.items():
        external = maybe_convert_block_hash(get_block_hash(key)), get_group_id(key)
        copies[external] = 1 if isinstance(blocks, KVCacheBlock) else len(blocks)
    return copies
