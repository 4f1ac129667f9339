# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A worker whose KV cache remembers for which prefix each slot was computed.

It learns of requests as model runner V1 does: all blocks when a request is new or
resumed, further ones as they come, and from where to compute. A slot that is read and
was written for another prefix, or never, is a wrong answer of a real model.
"""

from dataclasses import dataclass, field

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput


class WrongCache(AssertionError):
    """A request read keys and values that are not those of its prefix."""


@dataclass
class _Known:
    """What the worker knows of a request."""

    prompt: list[int]
    blocks: list[int] = field(default_factory=list)
    prefixes: list[int] = field(default_factory=list)  # a name for each prefix


class SlotMemory:
    """Executes what a scheduler plans.

    Args:
        scheduler: Has one KV-cache group.

    Attributes:
        computed: Tokens that were computed, by request, all steps together.
        chunks: First and last computed token of each step, by request.

    """

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self._block_size = scheduler.block_size
        self._slots: dict[int, list[int]] = {}  # of a block: prefix of each slot
        self._requests: dict[str, _Known] = {}
        self.computed: dict[str, int] = {}
        self.chunks: dict[str, list[tuple[int, int]]] = {}

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Write all slots, read all slots, and say a token where a prompt is done.

        Raises:
            WrongCache: See there.

        """
        starts = self._follow(output)
        plan = [
            (self._requests[request_id], starts[request_id], count)
            for request_id, count in output.num_scheduled_tokens.items()
        ]
        # A step computes layer by layer: what one request writes, another can read.
        for request, start, count in plan:
            self._write(request, start, start + count)
        for request, start, count in plan:
            self._read(request, start + count)
        sampled = []
        for request_id, count in output.num_scheduled_tokens.items():
            start = starts[request_id]
            self.computed[request_id] = self.computed.get(request_id, 0) + count
            self.chunks.setdefault(request_id, []).append((start, start + count))
            known = self._requests[request_id]
            done = start + count >= self._scheduler.requests[request_id].num_tokens
            sampled.append([self._token(known, start + count)] if done else [])
        ids = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
        )

    def _follow(self, output: SchedulerOutput) -> dict[str, int]:
        """Learn what is new; return from where each request computes."""
        starts = {}
        for new in output.scheduled_new_reqs:
            known = _Known(list(new.prompt_token_ids), list(new.block_ids[0]))
            self._requests[new.req_id] = known
            starts[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            known = self._requests[request_id]
            blocks = cached.new_block_ids[i]
            if request_id in cached.resumed_req_ids:
                known.blocks = []
            known.blocks += [] if blocks is None else blocks[0]
            starts[request_id] = cached.num_computed_tokens[i]
        return starts

    def _token(self, known: _Known, place: int) -> int:
        """Of the prompt, or what the model says: a function of the prefix alone."""
        if place < len(known.prompt):
            return known.prompt[place]
        return abs(self._prefix(known, place - 1)) % 97

    def _prefix(self, known: _Known, place: int) -> int:
        """A name for the tokens up to a place."""
        prefixes = known.prefixes
        while len(prefixes) <= place:
            before = prefixes[-1] if prefixes else 0
            prefixes.append(hash((before, self._token(known, len(prefixes)))))
        return prefixes[place]

    def _write(self, known: _Known, start: int, end: int) -> None:
        for place in range(start, end):
            block = known.blocks[place // self._block_size]
            slots = self._slots.setdefault(block, [-1] * self._block_size)
            slots[place % self._block_size] = self._prefix(known, place)

    def _read(self, known: _Known, end: int) -> None:
        for place in range(end):
            block = known.blocks[place // self._block_size]
            slots = self._slots.get(block)
            if slots is None or slots[place % self._block_size] != self._prefix(
                known, place
            ):
                raise WrongCache(f"token {place} of {len(known.prompt)} in {block}")
