# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the scheduler tells, and what the policy reports.

An access is counted once for a request and block: at its first admission. Lookups
that are retried and requests that resume after preemption are none.
"""

import reprlib
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from vllm.v1.core.eviction.rank_file import config_of_rank
from vllm.v1.core.eviction.recorder import Record, Recorder
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER
from vllm.v1.core.eviction.state_file import StateKeeper
from vllm.v1.core.eviction.windows import cached_groups

if TYPE_CHECKING:  # the C++ core is not needed to record under LRU
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

    from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

logger = init_logger(__name__)


def attach_policy(scheduler: "Scheduler", name: str) -> "EvictionHooks":
    """Put a policy in the place of the engine's free queue.

    Args:
        scheduler: Prefix caching is on.
        name: Not the default policy, not the manager.

    Raises:
        ValueError: The policy cannot be built, or would have nothing to order; one
            line, and nothing has changed.

    """
    from vllm.v1.core.eviction.free_queue import install
    from vllm.v1.core.eviction.recompute_cost import prefill_cost

    config = config_of_rank(
        scheduler.vllm_config.cache_config.eviction_config,
        scheduler.vllm_config.parallel_config,
    )
    manager = scheduler.kv_cache_manager
    cached_groups(manager)  # raises, if it does, before anything has changed
    # Also where the policy does not weigh it: what was saved is counted by it.
    cost = prefill_cost(scheduler.vllm_config).cost
    filler = manager.hole_filler
    holes = None if filler is None else filler.rule
    queue = install(manager.block_pool, name, config, cost=cost, holes=holes)
    assert queue is not None
    logger.info(
        "Prefix cache eviction policy: %s %s, %d blocks, %.1f MiB of metadata.",
        name,
        config or "",
        manager.block_pool.num_gpu_blocks,
        queue.bytes / 2**20,
    )
    hooks = EvictionHooks(name, queue, manager)
    if path := config.get("state_file"):
        hooks.state_keepers.append(StateKeeper(queue, name, path))
    return hooks


class Hooks:
    """What the scheduler calls. By itself it only records; LRU is live.

    None of its calls raises: a request does not fail because of us.

    Args:
        manager: The scheduler's KV-cache manager.
        policy: The configured one.
        failure: Why another policy than LRU could not be built.

    """

    def __init__(
        self,
        manager: "KVCacheManager",
        policy: str = DEFAULT_POLICY,
        failure: str | None = None,
    ):
        self.policy = policy
        self.recorder: Recorder | None = None
        self._failure = failure
        self._failures = 0 if failure is None else 1
        self._manager = manager
        self._now = 0.0
        self._num_admitted = 0
        # Admitted and not finished, by id: number of the admission, ascending.
        self._admitted: dict[str, int] = {}

    def step(self, now: float) -> None:
        """A scheduler step starts.

        Args:
            now: Seconds, monotonic.

        """
        try:
            self._on_step(now)
        except Exception as error:
            self._on_failure(error)
        self._now = now

    def admit(self, request: "Request", num_hit_tokens: int) -> None:
        """A request was given its blocks.

        Args:
            request: Was looked up in the prefix cache.
            num_hit_tokens: Prompt tokens that it need not compute.

        """
        if request.num_preemptions > 0 or request.request_id in self._admitted:
            return
        try:
            if not self._manager.prefix_cache_lookup_enabled(request):
                return  # it computes all anew: nothing is asked for, nothing missed
            self._num_admitted += 1
            self._admitted[request.request_id] = self._num_admitted
            self._on_admission(self._num_admitted, request, num_hit_tokens)
        except Exception as error:
            self._on_failure(error)

    def finish(self, request: "Request") -> None:
        """The request is over; its blocks are about to be released."""
        serial = self._admitted.pop(request.request_id, None)
        if serial is None:  # aborted before it was admitted
            return
        if self.recorder is not None:
            try:
                self._record(self.recorder, serial, request)
            except Exception:
                self.recorder = None
                logger.exception("The eviction trace file ends here.")
        try:
            self._on_end(serial, request)
        except Exception as error:
            self._on_failure(error)

    def reset(self) -> None:
        """The prefix cache was reset."""
        try:
            self._on_reset()
        except Exception as error:
            self._on_failure(error)

    def shutdown(self) -> None:
        """The engine stops."""
        try:
            self._on_shutdown()
        except Exception:
            logger.exception("Eviction policy %s did not end well.", self.policy)
        if self.recorder is not None:  # last: it may take its time
            self.recorder.close()

    def make_stats(self) -> dict[str, Any] | None:
        """What happened since the last call, for `SchedulerStats`."""
        try:
            return self._stats()
        except Exception as error:
            self._on_failure(error)
            return None

    def control(self, command: dict[str, Any]) -> dict[str, Any]:
        """Obey an operator.

        Args:
            command: `action` is `status`, `kill` (LRU order from now on, until the
                engine restarts) or, under `adaptive`, `pin` with a `policy` and
                `release`.

        Returns:
            The status.

        Raises:
            ValueError: One line.

        """
        action = command.get("action")
        if action in ("pin", "release"):
            if self.policy == MANAGER:  # which could not be built
                raise ValueError(f"Cannot {action}: {self._failure}")
            raise ValueError(
                f"Cannot {action}: the policy is {self.policy!r}, only "
                f"--eviction-policy {MANAGER} can."
            )
        if action == "kill":
            self._kill()
        elif action != "status":
            raise ValueError(
                f"Unknown action {reprlib.repr(action)}: choose from status, pin, "
                "release, kill."
            )
        return self.status()

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, fit for JSON."""
        return {
            "policy": self.policy,
            "live": DEFAULT_POLICY,
            "killed": False,
            "failure": self._failure,
        }

    def _kill(self) -> None:
        """Put LRU in charge; here it is."""

    # ---- For subclasses. What these raise goes no further than `_on_failure`. ----

    def _on_step(self, now: float) -> None:
        """A step starts; `_now` is still that of the last one."""

    def _on_admission(
        self, serial: int, request: "Request", num_hit_tokens: int
    ) -> None:
        """The first admission of a request."""

    def _on_end(self, serial: int, request: "Request") -> None:
        """The end of an admitted request."""

    def _on_reset(self) -> None:
        """The prefix cache was reset."""

    def _on_shutdown(self) -> None:
        """The engine stops."""

    def _stats(self) -> dict[str, Any] | None:
        """What happened since the last call."""
        if self._failure is None:
            return None
        failures, self._failures = self._failures, 0
        return {"policy": DEFAULT_POLICY, "failures": failures}

    def _on_failure(self, error: Exception) -> None:
        """One of them raised. The request goes on."""

    def _record(self, recorder: Recorder, serial: int, request: "Request") -> None:
        block_size = self._manager.block_pool.hash_block_size
        prompt = request.num_prompt_tokens
        recorder.finished(
            Record(
                serial,
                request.arrival_time,
                prompt,
                request.num_output_tokens,
                request.block_hashes[: prompt // block_size],
                prompt % block_size != 0,
                next(iter(self._admitted.values()), self._num_admitted + 1),
            )
        )


class EvictionHooks(Hooks):
    """The hooks of a policy of ours.

    Args:
        policy: Its name.
        queue: The pool's free queue.
        manager: The scheduler's KV-cache manager.

    """

    def __init__(
        self, policy: str, queue: "PolicyFreeQueue", manager: "KVCacheManager"
    ):
        super().__init__(manager, policy)
        self.queue = queue
        self.stopped = False
        """Nothing is decided any more; LRU, or what was live, stays."""
        self.state_keepers: list[StateKeeper] = []
        """Write what policies learn, where that is wanted."""
        self._killed = False
        self._reported: dict[str, float] = {
            "evictions": 0,
            "rereferences": 0,
            "failures": 0,
            "saved_compute": 0.0,
        }
        hash_block_size = manager.block_pool.hash_block_size
        self._cached_groups = cached_groups(manager)
        # Of each of them: id, block size, and how many hashes make a block.
        self._groups = [
            (
                group.kv_cache_group_id,
                group.block_size,
                group.block_size // hash_block_size,
            )
            for group in self._cached_groups
        ]

    def _on_step(self, now: float) -> None:
        self.queue.advance(now)
        if self.queue.failure and not self.stopped:
            self._report_failure(self.queue.failure, "LRU order")
        for keeper in self.state_keepers:
            keeper.step(now)

    def _on_reset(self) -> None:
        self.queue.sync()

    def _on_shutdown(self) -> None:
        for keeper in self.state_keepers:
            keeper.close()

    @property
    def observes_end(self) -> bool:
        """Whether anyone wants to know which blocks a request leaves behind."""
        return self.queue.observes_finish

    def _on_admission(
        self, serial: int, request: "Request", num_hit_tokens: int
    ) -> None:
        given = self._manager.get_blocks(request.request_id).blocks
        filler = self._manager.hole_filler
        runs = () if filler is None else filler.runs_of(request)
        self.queue.admit(
            serial,
            [
                (group, hashes, given[group], num_hit_tokens // block_size)
                for group, block_size, hashes in self._hashes(request)
            ],
            request.num_tokens,
            max(len(given[group]) for group, _, _ in self._groups),
            self._now,
            [(run.first, run.blocks) for run in runs],
        )

    def _on_end(self, serial: int, request: "Request") -> None:
        if not self.observes_end:
            return
        # A prefix is as long as its shortest group.
        filled = min(
            group.num_cached_block.get(request.request_id, 0) * group.block_size
            for group in self._cached_groups
        )
        self.queue.finish(
            serial,
            [
                (group, hashes[: filled // block_size])
                for group, block_size, hashes in self._hashes(request)
            ],
            self._now,
        )

    def _stats(self) -> dict[str, Any]:
        """What happened since the last call.

        Returns:
            `policy`: the one that is live. `evictions`: blocks whose content was
            dropped to make room. `rereferences`: queried blocks that were found
            among the ghosts; None for a policy without ghosts. `failures`: times
            that LRU had to take over. `saved_compute`: what the cached blocks of
            admitted prompts would have cost, in tokens at the start of a prompt.
            Where holes are filled, `HoleFiller.take_counts` as well.

        """
        totals = {
            "evictions": self.queue.evictions,
            "rereferences": self.queue.ghost_hits,
            "failures": self._failures,
            "saved_compute": self.queue.saved * self._groups[0][1],
        }
        stats: dict[str, Any] = {
            name: total - self._reported[name] for name, total in totals.items()
        }
        self._reported = totals
        stats["policy"] = self.live_policy
        if self.queue.ghost_limit == 0:
            stats["rereferences"] = None
        if self._manager.hole_filler is not None:
            stats |= self._manager.hole_filler.take_counts()
        return stats

    # ---- The operator's view. ----

    @property
    def live_label(self) -> str:
        """The policy that was last put in charge."""
        return self.policy

    @property
    def live_policy(self) -> str:
        """The policy that is in charge."""
        return DEFAULT_POLICY if self.queue.failure else self.live_label

    def status(self) -> dict[str, Any]:
        return super().status() | {
            "live": self.live_policy,
            "killed": self._killed,
            "evictions": self.queue.evictions,
            "rereferences": self.queue.ghost_hits if self.queue.ghost_limit else None,
            "free_blocks": self.queue.num_free_blocks,
            "learnt": self.queue.report(),
        }

    def _kill(self) -> None:
        if self.queue.failure:
            return
        logger.warning(
            "Prefix cache eviction policy: %s -> lru (killed by the operator).",
            self.live_label,
        )
        self._killed = True
        self._stop_deciding()
        self.queue.use_lru("killed by the operator")

    def _stop_deciding(self) -> None:
        """What is live stays; nobody is told anything any more."""
        self.stopped = True
        self.queue.attach(None)

    def _on_failure(self, error: Exception) -> None:
        self._report_failure(repr(error), self.live_policy, error)

    def _report_failure(
        self, why: str, what_stays: str, error: Exception | None = None
    ) -> None:
        """Stop, count, and log once."""
        if self.stopped:
            return
        self._stop_deciding()
        self._failure = why.strip().replace("\n", " | ")
        self._failures += 1
        logger.error(
            "Eviction policy %s failed (%s). Serving goes on with %s.",
            self.policy,
            self._failure,
            what_stays,
            exc_info=error,
        )

    def _hashes(self, request: "Request") -> list[tuple[int, int, list[bytes]]]:
        """Of each group: id, block size, and the hash of each full block."""
        hashes = request.block_hashes
        return [
            (group, size, hashes if every == 1 else hashes[every - 1 :: every])
            for group, size, every in self._groups
        ]
