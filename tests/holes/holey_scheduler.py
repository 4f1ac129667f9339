# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A scheduler that fills holes, a worker that remembers, and holes made by hand."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from real_pool import check_pool, make_request
from real_scheduler import BLOCK_SIZE, make_scheduler
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.request import Request, RequestStatus

from tests.holes.slot_memory import SlotMemory


class HoleyScheduler:
    """What a test does with the fork's scheduler.

    Args:
        model: Of a scheduler without a worker.
        policy: `--eviction-policy`.
        asynchronous: A step is planned before the last one is answered.
        options: Of `make_scheduler`; hole filling is required unless they say else.

    """

    def __init__(
        self,
        model: Path,
        policy: str = "lru",
        *,
        asynchronous: bool = False,
        **options: Any,
    ):
        self.scheduler = make_scheduler(
            model,
            policy,
            asynchronous=asynchronous,
            **{"hole_filling": "require"} | options,
        )
        self.manager = self.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.filler = self.manager.hole_filler
        self.worker = SlotMemory(self.scheduler)
        self._lag = int(asynchronous)
        self._flying: deque = deque()
        self.preemptions = 0
        self.queried = self.hit = 0  # tokens, as the front end is told
        self.events: list[Any] = []
        self.scheduler.kv_event_publisher = self
        self._counts: dict[str, Any] = {}

    def add(self, name: str, tokens: list[int], outputs: int = 1) -> Request:
        request = make_request(name, tokens, max_tokens=outputs)
        self.scheduler.add_request(request)
        return request

    def step(self) -> None:
        output = self.scheduler.schedule()
        self.preemptions += len(output.preempted_req_ids or ())
        self._flying.append((output, self.worker.execute(output)))
        while len(self._flying) > self._lag:
            self._answer()
        if self.filler is not None:
            self.filler.check()
        check_pool(self.pool)

    def run(self) -> None:
        """Until every request has ended and every step is answered."""
        for _ in range(5000):
            if self.scheduler.has_unfinished_requests():
                self.step()
            elif self._flying:
                self._answer()
            else:
                return
        raise AssertionError("no progress")

    def _answer(self) -> None:
        told = self.scheduler.update_from_output(*self._flying.popleft())
        for each in told.values():
            if (stats := each.scheduler_stats) is None:
                continue
            self.queried += stats.prefix_cache_stats.queries
            self.hit += stats.prefix_cache_stats.hits
            self._add(stats.eviction_stats or {})

    def _add(self, counts: dict[str, Any]) -> None:
        for name in ("holes", "hole_tokens"):
            self._counts[name] = self._counts.get(name, 0) + counts.get(name, 0)
        requests = self._counts.setdefault("request_holes", {})
        for holes, number in counts.get("request_holes", {}).items():
            requests[holes] = requests.get(holes, 0) + number

    @property
    def counts(self) -> dict[str, Any]:
        """Holes so far, whoever was told of them."""
        self._add(self.filler.take_counts())
        return self._counts

    def publish(self, batch: Any) -> None:
        """What a router would get."""
        self.events += batch.events

    def shutdown(self) -> None:
        """The scheduler ends, and with it who is told of events."""

    def serve(self, name: str, tokens: list[int], outputs: int = 1) -> Request:
        """One request, by itself."""
        request = self.add(name, tokens, outputs)
        self.run()
        return request

    def abort(self, *names: str) -> None:
        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)

    def cached(self, tokens: list[int]) -> list[KVCacheBlock | None]:
        """Of each full block of a prompt, the one that is found."""
        request = make_request("probe", tokens)
        found = [self.pool.get_cached_block(each, [0]) for each in request.block_hashes]
        return [None if each is None else each[0] for each in found]

    def make_holes(self, tokens: list[int], places: Iterable[int]) -> None:
        """Evict these blocks of a prompt."""
        blocks = self.cached(tokens)
        victims = [blocks[place] for place in places]
        self.pool.evict_blocks({each.block_id for each in victims if each is not None})


def prompt(num_blocks: int, family: int = 0, tail: int = 1) -> list[int]:
    """Tokens of so many full blocks, and a few more."""
    return [100 + 300 * family + i for i in range(num_blocks * BLOCK_SIZE + tail)]
