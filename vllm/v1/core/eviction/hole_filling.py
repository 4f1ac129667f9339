# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Compute only what is missing, also in the middle of a prompt.

Upstream reuses the cached blocks up to the first one that is missing. A policy that
evicts the cheap beginning of a long prompt leaves dear blocks behind a hole; they are
of use only to an engine that computes the hole and goes on behind it:

    cached prefix | hole | cached run | hole | cached run | rest
                  ^^^^^^                ^^^^^^              ^^^^^  computed

How, without a kernel knowing: the scheduler computes a prompt in chunks anyway. At its
admission a request is given the prefix as always; the runs that are worth it
(`HoleRule`) are pinned. A chunk is clipped where a run begins. Then the run's blocks
are appended to those of the request, and its number of computed tokens jumps over
them. So a request's blocks are at any time what it has computed, without gaps, and
nothing else in the engine sees a hole.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

if TYPE_CHECKING:
    from vllm._eviction_C import HoleRule
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.request import Request

logger = init_logger(__name__)

_GROUP = 0  # the one KV-cache group


@dataclass(frozen=True)
class Run:
    """Cached blocks behind a hole.

    Attributes:
        first: Block of the prompt that the first of them is.
        blocks: At least one.

    """

    first: int
    blocks: "list[KVCacheBlock]"

    @property
    def end(self) -> int:
        """Block of the prompt behind the last of them."""
        return self.first + len(self.blocks)


class HoleFiller:
    """Plans, pins and joins the cached runs of each request.

    Args:
        manager: The scheduler's; it has one group with full attention, and hashes
            and blocks are of one size.
        rule: Says which runs are worth it.
        reserves_prompt: A request is admitted only when its whole prompt fits.

    Attributes:
        rule: As given, for shadows.

    """

    def __init__(
        self, manager: "KVCacheManager", rule: "HoleRule", reserves_prompt: bool
    ):
        self._manager = manager
        self._pool = manager.block_pool
        self._group = manager.coordinator.single_type_managers[_GROUP]
        self._block_size = self._group.block_size
        self.rule = rule
        """Which runs are worth it; the shadows ask it, too."""
        self._reserves_prompt = reserves_prompt
        # Of the request that is being admitted: its id, prefix in blocks, runs.
        self._planned: tuple[str, int, list[Run]] | None = None
        self._pinned: dict[str, deque[Run]] = {}
        # Joined, and not yet told to the worker.
        self._joined: dict[str, list[KVCacheBlock]] = {}
        # Of the request that was admitted last, for who counts its hits.
        self._admitted: tuple[str, list[Run]] = ("", [])
        self._counts: dict[str, Any] = _no_counts()

    # ---- What the scheduler and the KV-cache manager call, in this order. ----

    def clip(
        self, request: "Request", num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Let a chunk of prefill end where a cached run begins.

        Args:
            request: About to be scheduled.
            num_computed_tokens: That it has by now, hits among them.
            num_new_tokens: That would be computed next.

        Returns:
            The tokens to compute next, at least one of `num_new_tokens`.

        """
        if request.status == RequestStatus.RUNNING:
            runs: Any = self._pinned.get(request.request_id)
        else:
            try:
                runs = self._plan(request, num_computed_tokens, num_new_tokens)
            except Exception as error:  # then it is served as a plain prefix
                logger.error_once(
                    "Holes are not filled: %s.", repr(error), scope="process"
                )
                return num_new_tokens
        if not runs:
            return num_new_tokens
        return min(
            num_new_tokens, runs[0].first * self._block_size - num_computed_tokens
        )

    def pin(self, request: "Request", num_tokens: int) -> None:
        """Hold the runs of a request that is given its blocks.

        Called when it is known that its first chunk fits and its prefix is held, and
        before its new blocks are chosen, which could be those of a run.

        Args:
            request: Perhaps one that is running already, and not concerned.
            num_tokens: Tokens for which it will have blocks after this step.

        """
        if self._planned is None or self._planned[0] != request.request_id:
            return
        _, prefix, runs = self._planned
        self._planned = None
        chunk = -(-num_tokens // self._block_size) - prefix
        room = self._pool.get_num_free_blocks() - chunk
        kept: deque[Run] = deque()
        for run in runs:
            free = sum(block.ref_cnt == 0 for block in run.blocks)
            if free > room:
                break  # only where the whole prompt is not sure to fit
            room -= free
            self._pool.touch(run.blocks)
            kept.append(run)
        self._admitted = (request.request_id, list(kept))
        if kept:
            self._pinned[request.request_id] = kept
            self._count(request, prefix, kept)

    def jump(self, request: "Request") -> None:
        """Go on behind a run, if what was scheduled last ends where it begins."""
        runs = self._pinned.get(request.request_id)
        if not runs or request.num_computed_tokens != runs[0].first * self._block_size:
            return
        run = runs.popleft()
        if not runs:
            del self._pinned[request.request_id]
        self._group.req_to_blocks[request.request_id].extend(run.blocks)
        self._group.num_cached_block[request.request_id] = run.end
        self._joined.setdefault(request.request_id, []).extend(run.blocks)
        request.num_computed_tokens = run.end * self._block_size

    def with_joined(
        self, request: "Request", new_blocks: "tuple[list[KVCacheBlock], ...]"
    ) -> "tuple[list[KVCacheBlock], ...]":
        """Add the blocks that the worker does not know yet to those of a step."""
        joined = self._joined.pop(request.request_id, None)
        return new_blocks if joined is None else (joined + new_blocks[_GROUP],)

    def release(self, request: "Request") -> None:
        """Let go of what is pinned for a request that ends or is preempted.

        What was joined is released with its other blocks, after this: tail first.
        """
        self._joined.pop(request.request_id, None)
        for run in reversed(self._pinned.pop(request.request_id, ())):
            self._pool.free_blocks(reversed(run.blocks))

    # ---- For who counts. ----

    def runs_of(self, request: "Request") -> list[Run]:
        """Runs that were pinned for the request that was admitted last."""
        request_id, runs = self._admitted
        return runs if request_id == request.request_id else []

    def num_tokens_of(self, request: "Request") -> int:
        """Tokens of those runs."""
        return self._block_size * sum(len(run.blocks) for run in self.runs_of(request))

    def take_counts(self) -> dict[str, Any]:
        """What happened since the last call.

        Returns:
            `holes`, and `hole_tokens` to be computed in them; `request_holes`: of the
            requests that had some, by their number of holes, how many there were.
            Nobody takes them where statistics are off, so they must not grow with
            the requests.

        """
        counts, self._counts = self._counts, _no_counts()
        return counts

    def check(self) -> None:
        """Check that what is pinned is held, and apart from what requests have.

        Raises:
            AssertionError: It is not.

        """
        for request_id, runs in self._pinned.items():
            # The last block of a hole may be there, and not full.
            reached = len(self._group.req_to_blocks[request_id]) - 1
            for run in runs:
                assert reached < run.first, "a run begins where there is no hole"
                assert all(block.ref_cnt > 0 for block in run.blocks), "not held"
                reached = run.end

    # ---- Work. ----

    def _plan(
        self, request: "Request", num_computed_tokens: int, num_new_tokens: int
    ) -> list[Run]:
        """Find the runs of a request that may be admitted now."""
        self._planned = None
        self._admitted = ("", [])
        prefix = num_computed_tokens // self._block_size
        limit = (request.num_tokens - 1) // self._block_size  # the last is computed
        length = -(-request.num_tokens // self._block_size)
        asked = num_computed_tokens + num_new_tokens
        wanted = length if self._reserves_prompt else -(-asked // self._block_size)
        # A request that waits for room is asked about in each step: not all over again.
        fits = wanted - prefix <= self._pool.get_num_free_blocks()
        if limit <= prefix + 1 or not fits or not self._may_jump(request):
            return []
        cached: dict[int, KVCacheBlock] = {}
        flags = bytearray(limit)
        hashes = islice(request.block_hashes, prefix, limit)
        for place, block_hash in enumerate(hashes, prefix):
            found = self._pool.get_cached_block(block_hash, [_GROUP])
            if found is not None:
                cached[place] = found[0]
                flags[place] = 1
        if not cached:
            return []
        runs = [
            Run(first, [cached[place] for place in range(first, end)])
            for first, end in self.rule.runs(bytes(flags), prefix, length)
        ]
        if runs:
            self._planned = (request.request_id, prefix, runs)
        return runs

    def _may_jump(self, request: "Request") -> bool:
        return (
            request.num_computed_tokens == 0  # nothing of its own
            and self._manager.prefix_cache_lookup_enabled(request)
            and not request.resumable  # its tokens are not all here
            and not request.mm_features
            and request.prompt_embeds is None
            and request.pooling_params is None
        )

    def _count(self, request: "Request", prefix: int, runs: "deque[Run]") -> None:
        if request.num_preemptions > 0:
            return
        cached = sum(len(run.blocks) for run in runs)
        if request.prefill_stats is not None:
            request.prefill_stats.set(
                num_prompt_tokens=request.num_prompt_tokens,
                num_local_cached_tokens=(prefix + cached) * self._block_size,
                num_external_cached_tokens=0,
            )
        holes = runs[-1].end - prefix - cached
        self._counts["holes"] += len(runs)
        self._counts["hole_tokens"] += holes * self._block_size
        requests = self._counts["request_holes"]
        requests[len(runs)] = requests.get(len(runs), 0) + 1


def _no_counts() -> dict[str, Any]:
    return {"holes": 0, "hole_tokens": 0, "request_holes": {}}
