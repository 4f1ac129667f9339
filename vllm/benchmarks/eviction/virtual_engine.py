# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Takes the part of the engine around vLLM's scheduler: adds the requests of a
trace, and gives the output of each step back when it is due by the virtual clock.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from vllm._eviction_C import ServiceModel
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from vllm.benchmarks.eviction.null_scheduler import VirtualClock, make_scheduler
from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.trace import Trace

_HASH_BYTES = 32  # as of sha256, vLLM's default


@dataclass(slots=True, eq=False)
class _Running:
    """A request on its way.

    Attributes:
        request: The engine's.
        index: In the trace.
        origin: Seconds; output token j is sampled j times a token's time later.
            None while it waits.
        in_flight: Tokens scheduled whose output has not been delivered.
        until: The output token up to which the output in flight goes.
        ticket: Of the delivery that is due; deliveries with another are void.

    """

    request: Request
    index: int
    origin: float | None = None
    in_flight: int = 0
    until: int = 0
    ticket: int = 0


class VirtualEngine:
    """One replay. `vllm.benchmarks.eviction.harness` says what is left out, and why.

    Args:
        trace: Requests, with a key for each full block of prompt and output.
        num_blocks: Blocks of the pool that can hold something.
        cache_options: Fields of `CacheConfig`: `eviction_policy` and what goes
            with it.
        service: Of time; the default is the one of the workloads.
        log_stats: As of the engine; changes no result.

    Attributes:
        scheduler: vLLM's.
        clock: What the scheduler reads.

    Raises:
        ValueError: A request of the trace lacks keys, or the options are not valid;
            one line.

    """

    def __init__(
        self,
        trace: Trace,
        num_blocks: int,
        cache_options: dict[str, Any] | None = None,
        service: ServiceModel | None = None,
        *,
        log_stats: bool = False,
    ):
        _check_keys(trace)
        self.clock = VirtualClock()
        self._trace = trace
        self._service = service or ServiceModel()
        self.scheduler = make_scheduler(
            num_blocks,
            trace.block_size,
            self._service.max_running,
            cache_options or {},
            log_stats=log_stats,
        )
        self._capacity = num_blocks * trace.block_size  # tokens
        self._next = 0  # request of the trace
        self._requests: dict[str, _Running] = {}
        self._due: list[tuple[float, int, _Running]] = []
        self._tickets = 0
        self._query_blocks = self._hit_blocks = self._admitted = self._refused = 0
        self._query_tokens = 0
        self._waited = 0.0
        self._evictions = 0
        self._count_evictions()

    @property
    def next_time(self) -> float:
        """Seconds; when something happens next, infinity when all is done."""
        while self._due and self._due[0][1] != self._due[0][2].ticket:
            heapq.heappop(self._due)
        due = self._due[0][0] if self._due else math.inf
        arrivals = self._trace.arrivals
        return (
            min(float(arrivals[self._next]), due) if self._next < len(arrivals) else due
        )

    def run(self, until: float = math.inf) -> None:
        """Handle all that happens before a time.

        Args:
            until: Seconds.

        Raises:
            RuntimeError: The scheduler has left a request behind: a bug.

        """
        with self.clock.in_charge():
            while (now := self.next_time) < until:
                self.clock.now = now
                self._deliver_due()
                self._add_arrivals()
                while self._step():
                    pass  # what was preempted may come back in the next step
        if until == math.inf and self.scheduler.requests:
            raise RuntimeError(f"{len(self.scheduler.requests)} requests never ended.")

    def result(self) -> Result:
        """What was counted so far; hits are those of each first admission."""
        queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        return Result(
            hit_rate=self._hit_blocks / self._query_blocks
            if self._query_blocks
            else 0.0,
            query_blocks=self._query_blocks,
            hit_blocks=self._hit_blocks,
            requests=self._admitted,
            refused=self._refused,
            mean_wait=self._waited / max(1, self._admitted),
            evictions=getattr(queue, "evictions", self._evictions),
            query_tokens=self._query_tokens,
            hit_tokens=self._hit_blocks * self._trace.block_size,
            ghost_hits=getattr(queue, "ghost_hits", 0),
        )

    # ---- Requests in. ----

    def _add_arrivals(self) -> None:
        trace = self._trace
        while self._next < len(trace) and trace.arrivals[self._next] <= self.clock.now:
            index = self._next
            self._next += 1
            prompt_tokens = int(trace.prompt_tokens[index])
            # No engine answers with nothing.
            output_tokens = max(1, int(trace.output_tokens[index]))
            if prompt_tokens == 0 or prompt_tokens + output_tokens > self._capacity:
                self._refused += 1
                continue
            request = Request(
                request_id=str(index),
                prompt_token_ids=[0] * prompt_tokens,
                sampling_params=SamplingParams(
                    max_tokens=output_tokens, ignore_eos=True, detokenize=False
                ),
                pooling_params=None,
                arrival_time=self.clock.now,
                block_hasher=_BlockHashes(trace, index),
            )
            self._requests[request.request_id] = _Running(request, index)
            self.scheduler.add_request(request)

    # ---- Steps. ----

    def _step(self) -> bool:
        """Schedule. True when a request was preempted."""
        output = self.scheduler.schedule()
        for new in output.scheduled_new_reqs:
            running = self._requests[new.req_id]
            if running.request.num_preemptions == 0:
                self._count_admission(running.index, new.num_computed_tokens)
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            self._expect(self._requests[request_id], num_tokens)
        preempted = [self._requests[i] for i in output.preempted_req_ids or ()]
        if preempted:
            self._interrupt(preempted)
        return bool(preempted)

    def _count_admission(self, index: int, num_hit_tokens: int) -> None:
        trace = self._trace
        self._admitted += 1
        self._query_tokens += int(trace.prompt_tokens[index])
        self._query_blocks += int(trace.prompt_tokens[index]) // trace.block_size
        self._hit_blocks += num_hit_tokens // trace.block_size
        self._waited += self.clock.now - float(trace.arrivals[index])

    def _expect(self, running: _Running, num_tokens: int) -> None:
        """A step of `num_tokens` was scheduled: put down when its output is due."""
        service, request = self._service, running.request
        sampled = request.num_output_tokens
        if running.origin is None:
            base = service.base if request.num_preemptions == 0 else 0.0
            prefill = num_tokens / service.prefill_rate
            running.origin = (
                self.clock.now + base + prefill - sampled * service.decode_seconds
            )
        running.in_flight = num_tokens
        running.until = self._next_token(request)
        self._tickets += 1
        running.ticket = self._tickets
        due = running.origin + running.until * service.decode_seconds
        heapq.heappush(self._due, (due, running.ticket, running))

    def _next_token(self, request: Request) -> int:
        """The first output token, counted from 1, that must not be late.

        It is the next whose KV takes or fills a block, the last but one, which has
        to be computed before the last ends the request, or the last.
        """
        sampled, last = request.num_output_tokens, request.max_tokens
        if sampled >= last - 1:
            return last
        size = self._trace.block_size
        place = (request.num_prompt_tokens + sampled) % size  # of the next token's KV
        ahead = 1 if place == 0 else size - place
        return min(sampled + ahead, last - 1)

    def _deliver_due(self) -> None:
        due = []
        while self._due and self._due[0][0] <= self.clock.now:
            _, ticket, running = heapq.heappop(self._due)
            if ticket == running.ticket:
                due.append(running)
        self._deliver([(running, running.until) for running in due])

    def _interrupt(self, preempted: list[_Running]) -> None:
        """Hand over what preempted requests have sampled by now."""
        outputs = []
        for running in preempted:
            assert running.origin is not None
            elapsed = self.clock.now - running.origin
            sampled = int(elapsed / self._service.decode_seconds)
            sampled = min(sampled, running.until - 1)
            running.origin = None
            running.ticket = 0
            if running.in_flight:  # else it was delivered a moment ago
                known = running.request.num_output_tokens
                outputs.append((running, max(sampled, known)))
        self._deliver(outputs)

    def _deliver(self, outputs: list[tuple[_Running, int]]) -> None:
        """Give the scheduler the output of steps.

        Args:
            outputs: Requests, and the output token up to which each has sampled.

        """
        if not outputs:
            return
        steps = SchedulerOutput.make_empty()
        sampled = []
        for running, until in outputs:
            request = running.request
            steps.num_scheduled_tokens[request.request_id] = running.in_flight
            sampled.append([0] * (until - request.num_output_tokens))
            running.in_flight = 0
        ids = list(steps.num_scheduled_tokens)
        self.scheduler.update_from_output(
            steps,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
                sampled_token_ids=sampled,
            ),
        )
        for running, _ in outputs:
            if running.request.is_finished():
                del self._requests[running.request.request_id]

    def _count_evictions(self) -> None:
        """Upstream's own queue does not count; have it counted on the way out."""
        queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        if hasattr(queue, "evictions"):
            return
        popleft_n = queue.popleft_n

        def counted(n: int) -> list[Any]:
            blocks = popleft_n(n)
            self._evictions += sum(block.block_hash is not None for block in blocks)
            return blocks

        queue.popleft_n = counted


class _BlockHashes:
    """Stands for the function that hashes a request's tokens block by block."""

    def __init__(self, trace: Trace, index: int):
        keys = trace.keys[trace.offsets[index] : trace.offsets[index + 1]]
        words = np.zeros((len(keys), _HASH_BYTES // 8), dtype="<u8")
        words[:, 0] = keys
        self._block_size = trace.block_size
        self._bytes = words.tobytes()

    def __call__(self, request: Request) -> list[bytes]:
        """Hashes of the blocks that are full and not hashed yet."""
        known = len(request.block_hashes)
        full = request.num_tokens // self._block_size
        return [
            self._bytes[i * _HASH_BYTES : (i + 1) * _HASH_BYTES]
            for i in range(known, full)
        ]


def _check_keys(trace: Trace) -> None:
    tokens = trace.prompt_tokens.astype(np.int64) + np.maximum(trace.output_tokens, 1)
    needed = (tokens - 1) // trace.block_size
    has = np.diff(trace.offsets).astype(np.int64)
    if (has < needed).any():
        index = int(np.argmax(has < needed))
        raise ValueError(
            f"Request {index} of the trace has {has[index]} keys: its prompt and "
            f"output fill {needed[index]} blocks, and each needs one."
        )
