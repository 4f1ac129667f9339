# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Upstream's real `BlockPool` with a policy in it, driven by its public methods.

A content is a small integer; one block holds one content. What is true of every
pool at every moment is said once, in `check_pool`.
"""

from collections import Counter
from functools import cache

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import (
    BlockHash,
    KVCacheBlock,
    get_request_block_hasher,
)
from vllm.v1.request import Request

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue, install

BLOCK_SIZE = 4  # tokens


def make_pool(
    num_blocks: int, *, enable_caching: bool = True, events: bool = False
) -> BlockPool:
    """A pool of `num_blocks`, one of which is the null block."""
    return BlockPool(num_blocks, enable_caching, BLOCK_SIZE, events)


def make_pool_with(
    policy: str, num_blocks: int, *, events: bool = False
) -> tuple[BlockPool, PolicyFreeQueue]:
    """A pool whose free queue is ordered by a policy; for `lru` by the C++ one."""
    pool = make_pool(num_blocks, events=events)
    queue = install(pool, policy, {}, replace_lru=True)
    assert queue is not None and pool.free_block_queue is queue
    return pool, queue


def make_request(
    request_id: str,
    tokens: list[int],
    max_tokens: int = 1,
    params: SamplingParams | None = None,
) -> Request:
    """A real request with the hashes of its full blocks."""
    return Request(
        request_id=request_id,
        prompt_token_ids=tokens,
        sampling_params=params
        or SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


@cache
def request_for(content: int) -> Request:
    """A request whose prompt is the one block of this content."""
    return make_request(f"content-{content}", [content] * BLOCK_SIZE)


def hash_of(content: int) -> BlockHash:
    """The hash of that block, without a group."""
    return request_for(content).block_hashes[0]


def write(pool: BlockPool, block: KVCacheBlock, content: int, group: int = 0) -> None:
    """Fill a block that is in use, and make it findable."""
    pool.cache_full_blocks(request_for(content), [block], 0, 1, BLOCK_SIZE, group)


def hold(pool: BlockPool, *contents: int, group: int = 0) -> list[KVCacheBlock]:
    """Allocate and fill one block for each content, as one request."""
    blocks = pool.get_new_blocks(len(contents))
    for block, content in zip(blocks, contents, strict=True):
        write(pool, block, content, group)
    return blocks


def store(pool: BlockPool, *contents: int, group: int = 0) -> list[KVCacheBlock]:
    """The same, one request after the other, each released before the next."""
    blocks = []
    for content in contents:
        blocks += hold(pool, content, group=group)
        pool.free_blocks(blocks[-1:])
    return blocks


def find(pool: BlockPool, content: int, group: int = 0) -> KVCacheBlock | None:
    """The block that a request for this content would hit."""
    found = pool.get_cached_block(hash_of(content), [group])
    return found[0] if found else None


def ask(
    queue: PolicyFreeQueue, content: int, hit: KVCacheBlock | None, group: int = 0
) -> None:
    """Tell the policy that a new request asked for one content."""
    admit(
        queue, [(group, [hash_of(content)], [hit] if hit else [], int(hit is not None))]
    )


def admit(queue: PolicyFreeQueue, groups: list[tuple], serial: int = 1) -> None:
    """The same for any request: group, hashes, blocks, how many were given."""
    num_blocks = max(len(hashes) for _, hashes, _, _ in groups)
    queue.admit(serial, groups, num_blocks * BLOCK_SIZE, num_blocks, float(serial))


def ids(blocks: list[KVCacheBlock]) -> list[int]:
    """Block ids, to be compared: blocks themselves compare by value."""
    return [block.block_id for block in blocks]


def drain(pool: BlockPool) -> list[int]:
    """Allocate all that is free, one after the other: the order of eviction."""
    return [
        pool.get_new_blocks(1)[0].block_id for _ in range(pool.get_num_free_blocks())
    ]


def check_pool(pool: BlockPool) -> None:
    """What holds after every operation, whatever the policy.

    Each block is free exactly once or in use, the count says how many are free,
    the null block is never among them, and all lists of the policy are sound.
    """
    queue = pool.free_block_queue
    free = Counter(block.block_id for block in queue.get_all_free_blocks())
    unused = {block.block_id for block in pool.blocks[1:] if block.ref_cnt == 0}
    assert free == Counter(unused)
    assert pool.null_block.block_id not in free
    assert queue.num_free_blocks == pool.get_num_free_blocks() == len(unused)
    if isinstance(queue, PolicyFreeQueue):
        queue.check()
