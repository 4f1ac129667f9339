# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random traffic on a real `BlockPool`: everything that upstream does to one.

An operation is a name and two small numbers, so that hypothesis can shorten a
sequence, and that two pools can be given the same one.
"""

from dataclasses import dataclass, field
from functools import cache

from event_consumer import EventConsumer, resident_in
from hypothesis import strategies as st
from real_pool import BLOCK_SIZE, admit, check_pool, ids, make_request
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

# Hashes are made for half a block, so that a block can be findable in part.
TOKENS = 2 * BLOCK_SIZE
FAMILIES = 5
LONGEST = 6  # blocks of a prompt

OPERATIONS = (
    # Often, what requests do.
    "start", "start", "start", "recompute", "start_unfinished", "fill",
    "finish", "finish", "finish", "finish",
    # Now and then, what else happens to blocks.
    "pin", "pin_found", "release_pin", "unpin", "evict", "move",
    "look_ahead", "reset", "finish_all_and_reset",
)  # fmt: skip

operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 99), st.integers(0, 99)),
    min_size=50,
    max_size=200,
)
Operation = tuple[str, int, int]


@cache
def prompt_of(family: int, num_blocks: int) -> Request:
    """Prompts of a family begin alike."""
    tokens = [1000 * family + i // TOKENS for i in range(num_blocks * TOKENS)]
    return make_request(f"{family}-{num_blocks}", tokens)


@dataclass
class Tenant:
    """A request that holds blocks."""

    prompt: Request
    group: int
    blocks: list[KVCacheBlock]
    unfilled: bool  # the last block
    partial: bool = False


@dataclass
class PoolTraffic:
    """Carries out operations on one pool and checks it after each.

    Attributes:
        pool: With events on.
        victims: Ids of all blocks that were allocated, in order.

    """

    pool: BlockPool
    victims: list[int] = field(default_factory=list)
    tenants: list[Tenant] = field(default_factory=list)
    pins: list[KVCacheBlock] = field(default_factory=list)
    reused: list[int] = field(default_factory=list)
    consumer: EventConsumer = field(default_factory=EventConsumer)
    serial: int = 0

    def run(self, operation: Operation) -> None:
        """One operation; one that is not possible now does nothing."""
        name, a, b = operation
        getattr(self, name)(a, b)
        check_pool(self.pool)
        self.consumer.follow(self.pool.take_events())
        assert +self.consumer.copies == resident_in(self.pool)

    def allocate(self, n: int, look_first: bool = False) -> list[KVCacheBlock]:
        queue = self.pool.free_block_queue
        told = ids(queue.get_all_free_blocks())[:n] if look_first else None
        blocks = self.pool.get_new_blocks(n)
        assert told is None or ids(blocks) == told, "what was told came not true"
        self.victims += ids(blocks)
        return blocks

    # ---- Requests. ----

    def start(self, a: int, b: int, *, lookup: bool = True, fill_last: bool = True):
        """As an engine: hit the longest prefix short of the last token, pay for
        the rest."""
        group, num_blocks = a // 50, 1 + b % LONGEST
        prompt = prompt_of(a % FAMILIES, num_blocks)
        hashes = prompt.block_hashes[1::2]
        hits: list[KVCacheBlock] = []
        for hash_ in hashes[: num_blocks - 1] if lookup else []:
            found = self.pool.get_cached_block(hash_, [group])
            if found is None:
                break
            hits += found
        num_new = num_blocks - len(hits)
        free_hits = sum(block.ref_cnt == 0 for block in hits)
        if num_new > self.pool.get_num_free_blocks() - free_hits:
            return
        self.pool.touch(hits)
        blocks = hits + self.allocate(num_new, look_first=b % 2 == 0)
        self.tell(group, hashes, blocks, len(hits))
        num_full = num_blocks if fill_last else num_blocks - 1
        self.pool.cache_full_blocks(prompt, blocks, len(hits), num_full, TOKENS, group)
        self.tenants.append(Tenant(prompt, group, blocks, unfilled=not fill_last))

    def tell(self, group: int, hashes: list, blocks: list, num_hits: int) -> None:
        queue = self.pool.free_block_queue
        if isinstance(queue, PolicyFreeQueue):
            self.serial += 1
            admit(queue, [(group, hashes, blocks, num_hits)], self.serial)
            queue.advance(float(self.serial))

    def recompute(self, a: int, b: int) -> None:
        """A request that does not look into the cache: copies."""
        self.start(a, b, lookup=False)

    def start_unfinished(self, a: int, b: int) -> None:
        """Its last block is not full."""
        self.start(a, b, fill_last=False)

    def fill(self, a: int, b: int) -> None:
        """An unfilled block becomes findable: its first half, then all of it."""
        unfilled = [tenant for tenant in self.tenants if tenant.unfilled]
        if not unfilled:
            return
        tenant = unfilled[a % len(unfilled)]
        last = len(tenant.blocks) - 1
        if not tenant.partial and b % 2:
            self.pool.cache_partial_block(
                tenant.prompt,
                tenant.blocks[-1],
                last * TOKENS + BLOCK_SIZE,
                tenant.group,
                TOKENS,
            )
            tenant.partial = True
            return
        self.pool.cache_full_blocks(
            tenant.prompt, tenant.blocks, last, last + 1, TOKENS, tenant.group
        )
        tenant.unfilled = False

    def finish(self, a: int, b: int) -> None:
        if self.tenants:
            tenant = self.tenants.pop(a % len(self.tenants))
            self.pool.free_blocks(reversed(tenant.blocks))

    # ---- What connectors, copies and operators do. ----

    def pin(self, a: int, b: int) -> None:
        block = self.pool.blocks[1 + a % (self.pool.num_gpu_blocks - 1)]
        self.pool.touch([block])
        self.pins.append(block)

    def pin_found(self, a: int, b: int) -> None:
        prompt = prompt_of(a % FAMILIES, LONGEST)
        found = self.pool.get_cached_block(prompt.block_hashes[1], [a // 50])
        if found is not None:
            self.pool.touch(found)
            self.pins += found

    def release_pin(self, a: int, b: int) -> None:
        if self.pins:
            self.pool.free_blocks([self.pins.pop(a % len(self.pins))])

    def unpin(self, a: int, b: int) -> None:
        if self.pins:
            self.pool.unpin_blocks(
                [self.pins.pop(a % len(self.pins))],
                lambda block: self.reused.append(block.block_id),
            )

    def evict(self, a: int, b: int) -> None:
        count = self.pool.num_gpu_blocks - 1
        self.pool.evict_blocks({1 + a % count, 1 + b % count})

    def move(self, a: int, b: int) -> None:
        """Copy on write: a private copy takes over the hashes of a block in use."""
        held = [block for tenant in self.tenants for block in tenant.blocks]
        held = [block for block in held if block.block_hash is not None]
        if not held or self.pool.get_num_free_blocks() == 0:
            return
        (target,) = self.allocate(1)
        self.pool.move_block_hashes(held[a % len(held)], target)
        self.pool.free_blocks([target])

    def look_ahead(self, a: int, b: int) -> None:
        queue = self.pool.free_block_queue
        seen = ids(list(queue.iter_blocks_after(None)))
        assert seen == ids(queue.get_all_free_blocks())

    def reset(self, a: int, b: int) -> None:
        in_use = bool(self.tenants or self.pins)
        assert self.pool.reset_prefix_cache() is not in_use

    def finish_all_and_reset(self, a: int, b: int) -> None:
        if a % 4 == 0:
            while self.tenants:
                self.finish(b, a)
            while self.pins:
                self.release_pin(b, a)
            self.reset(a, b)
