# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random traffic on a real `KVCacheManager`, by a scheduler of a few lines.

It does to the manager what upstream's does: look up, allocate chunk by chunk,
preempt the last when there is no room, free; and what upstream's does seldom:
evict blocks under running requests and reset.
"""

from dataclasses import dataclass, field

from event_consumer import EventConsumer, resident_in
from hypothesis import strategies as st
from real_pool import BLOCK_SIZE, check_pool, make_request
from real_scheduler import cache_groups
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request, RequestStatus

from vllm.v1.core.eviction.free_queue import install
from vllm.v1.core.eviction.hooks import EvictionHooks

OPERATIONS = (
    "arrive", "arrive", "arrive", "step", "step", "step", "step", "step",
    "finish", "abort_waiting", "preempt", "evict", "reset",
)  # fmt: skip

operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 99), st.integers(0, 99)),
    min_size=30,
    max_size=120,
)
Operation = tuple[str, int, int]

CHUNK = 12  # tokens of one request in one step
MAX_LENGTH = 80  # tokens


def make_manager(num_blocks: int, num_groups: int) -> KVCacheManager:
    """Of one group with full attention, or of one more with a sliding window."""
    return KVCacheManager(
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=cache_groups(num_groups),
        ),
        max_model_len=MAX_LENGTH,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        max_in_flight_tokens=CHUNK,
        enable_caching=True,
        log_stats=True,
        enable_kv_cache_events=True,
    )


def install_hooks(manager: KVCacheManager, policy: str) -> EvictionHooks:
    """Order the manager's pool by a policy; for `lru` by the C++ one."""
    queue = install(manager.block_pool, policy, {}, replace_lru=True)
    assert queue is not None
    return EvictionHooks(policy, queue, manager)


@dataclass
class ManagerTraffic:
    """Carries out operations and checks the manager's pool after each.

    Attributes:
        manager: With events on.
        hooks: None with upstream's own queue.
        given: Block ids of all groups, of each allocation.

    """

    manager: KVCacheManager
    hooks: EvictionHooks | None = None
    given: list[tuple] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    consumer: EventConsumer = field(default_factory=EventConsumer)
    arrivals: int = 0

    def run(self, operation: Operation) -> None:
        """One operation; one that is not possible now does nothing."""
        name, a, b = operation
        getattr(self, name)(a, b)
        pool = self.manager.block_pool
        check_pool(pool)
        self.consumer.follow(self.manager.take_events())
        assert +self.consumer.copies == resident_in(pool)
        if self.hooks is not None:
            assert self.hooks.queue.failure == ""
            assert len(self.hooks._admitted) <= len(self.waiting) + len(self.running)

    def run_dry(self) -> None:
        """End everything: then all blocks are free and nothing is remembered."""
        for request in self.running + self.waiting:
            self._end(request)
        self.running, self.waiting = [], []
        pool = self.manager.block_pool
        check_pool(pool)
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
        assert self.hooks is None or not self.hooks._admitted

    # ---- Operations. ----

    def arrive(self, a: int, b: int) -> None:
        """Prompts of four families; some end at a block's end, some do not."""
        tokens = [1000 * (a % 4) + i for i in range(1 + b % 50)]
        self.arrivals += 1
        name = f"request-{self.arrivals}"
        self.waiting.append(make_request(name, tokens, max_tokens=MAX_LENGTH))

    def step(self, a: int, b: int) -> None:
        self.manager.new_step_starts()
        if self.hooks is not None:
            self.hooks.step(float(self.arrivals))
        for request in list(self.running):
            if request in self.running:
                self._grow(request, token=b % 3)
        while self.waiting and len(self.running) < 5 and self._admit(self.waiting[0]):
            self.running.append(self.waiting.pop(0))

    def finish(self, a: int, b: int) -> None:
        if self.running:
            self._end(self.running.pop(a % len(self.running)))

    def abort_waiting(self, a: int, b: int) -> None:
        if self.waiting:
            self._end(self.waiting.pop(a % len(self.waiting)))

    def preempt(self, a: int, b: int) -> None:
        if self.running:
            self._preempt(self.running[-1])

    def evict(self, a: int, b: int) -> None:
        count = self.manager.block_pool.num_gpu_blocks - 1
        self.manager.evict_blocks({1 + a % count, 1 + b % count})

    def reset(self, a: int, b: int) -> None:
        if b % 2:
            while self.running:
                self._preempt(self.running[-1])
        done = self.manager.reset_prefix_cache()
        assert done is not bool(self.running)
        if done and self.hooks is not None:
            self.hooks.reset()

    # ---- Their parts. ----

    def _admit(self, request: Request) -> bool:
        blocks, num_hits, _ = self.manager.get_computed_blocks(request)
        num_new = min(CHUNK, request.num_tokens - num_hits)
        given = self.manager.allocate_slots(request, num_new, num_hits, blocks)
        if given is None:
            return False
        self.given.append(given.get_block_ids())
        self.manager.record_prefix_cache_stats(request, num_hits)
        if self.hooks is not None:
            self.hooks.admit(request, num_hits)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hits + num_new
        return True

    def _grow(self, request: Request, token: int) -> None:
        """The next chunk of the prompt, or one more token of the answer."""
        if request.num_computed_tokens == request.num_tokens:
            if request.num_tokens == MAX_LENGTH:
                self.running.remove(request)
                self._end(request)
                return
            request.append_output_token_ids(5000 + token)
        num_new = min(CHUNK, request.num_tokens - request.num_computed_tokens)
        while (given := self.manager.allocate_slots(request, num_new)) is None:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return
        self.given.append(given.get_block_ids())
        request.num_computed_tokens += num_new

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.insert(0, request)

    def _end(self, request: Request) -> None:
        if self.hooks is not None:
            self.hooks.finish(request)
        self.manager.free(request)
