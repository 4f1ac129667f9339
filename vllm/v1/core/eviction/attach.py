# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The one seam with the scheduler.

`attach_eviction` puts the policy in place when the scheduler is built; the hooks
tell it what requests do. Under `lru` there are no hooks and upstream's queue is
not touched.
"""

from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER

if TYPE_CHECKING:
    from vllm.v1.core.eviction.free_queue import PolicyFreeQueue
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

logger = init_logger(__name__)


def attach_eviction(scheduler: "Scheduler") -> "EvictionHooks | None":
    """Put the configured policy in the place of the engine's free queue.

    Args:
        scheduler: Its KV-cache manager is built; nothing else needs to be.

    Returns:
        What the scheduler calls, or None when upstream's queue stays: under
        `lru`, without prefix caching, and when the policy cannot be built, which
        is logged and does not stop the engine.

    """
    cache_config = scheduler.vllm_config.cache_config
    name = cache_config.eviction_policy
    if name == DEFAULT_POLICY:
        return None
    manager = scheduler.kv_cache_manager
    if not manager.block_pool.enable_caching:
        logger.warning(
            "--eviction-policy %s is ignored: prefix caching is off, "
            "or the model does not support it.",
            name,
        )
        return None
    try:
        if name == MANAGER:
            from vllm.v1.core.eviction.adaptive import attach_adaptive

            return attach_adaptive(scheduler)
        from vllm.v1.core.eviction.free_queue import install

        queue = install(manager.block_pool, name, cache_config.eviction_config)
    except ValueError as error:
        # Known when the model is known: nothing that the flags could have told.
        logger.error("Eviction policy %s: %s. LRU stays.", name, error)
        return None
    except Exception:
        logger.exception("Eviction policy %s could not be built; LRU stays.", name)
        return None
    assert queue is not None
    logger.info(
        "Prefix cache eviction policy: %s %s, %d blocks, %.1f MiB of metadata.",
        name,
        cache_config.eviction_config or "",
        manager.block_pool.num_gpu_blocks,
        queue.bytes / 2**20,
    )
    return EvictionHooks(name, queue, manager)


class EvictionHooks:
    """What the scheduler tells the policy, and what the policy reports.

    An access is counted once for a request and block: at its first admission.
    Lookups that are retried and requests that resume after preemption are none.

    Args:
        policy: Its name.
        queue: The pool's free queue.
        manager: The scheduler's KV-cache manager.

    """

    def __init__(
        self, policy: str, queue: "PolicyFreeQueue", manager: "KVCacheManager"
    ):
        self.policy = policy
        self.queue = queue
        self._manager = manager
        self._now = 0.0
        self._serials: dict[str, int] = {}  # admitted and not finished
        self._num_admitted = 0
        self._failures = 0
        self._killed = False
        self.stopped = False
        """Nothing is decided any more; LRU, or what was live, stays."""
        self._reported = {"evictions": 0, "rereferences": 0, "failures": 0}
        hash_block_size = manager.block_pool.hash_block_size
        # Of each KV-cache group: id, block size, and how many hashes make a block.
        self._groups = [
            (group.kv_cache_group_id, group.block_size, group.block_size // hash_block_size)
            for group in manager.coordinator.single_type_managers
        ]

    def step(self, now: float) -> None:
        """A scheduler step starts.

        Args:
            now: Seconds, monotonic.

        """
        self._now = now
        self.queue.advance(now)
        if self.queue.failure and not self.stopped:
            self._report_failure(
                "Eviction policy %s failed (%s). Serving goes on with LRU order.",
                self.policy,
                self.queue.failure.strip().replace("\n", " | "),
            )

    def admit(self, request: "Request", num_hit_tokens: int) -> None:
        """A request was given its blocks.

        Args:
            request: Was looked up in the prefix cache.
            num_hit_tokens: Prompt tokens that it need not compute.

        """
        request_id = request.request_id
        if request.num_preemptions > 0 or request_id in self._serials:
            return
        self._num_admitted += 1
        self._serials[request_id] = self._num_admitted
        given = self._manager.get_blocks(request_id).blocks
        self.queue.admit(
            self._num_admitted,
            [
                (group, hashes, given[group], num_hit_tokens // block_size)
                for group, block_size, hashes in self._hashes(request)
            ],
            request.num_tokens,
            max(len(blocks) for blocks in given),
            self._now,
        )

    def finish(self, request: "Request") -> None:
        """The request is over; its blocks are about to be released."""
        serial = self._serials.pop(request.request_id, None)
        if serial is not None and self.observes_finish:
            request_id = request.request_id
            # A prefix is as long as its shortest group.
            filled = min(
                group.num_cached_block.get(request_id, 0)
                for group in self._manager.coordinator.single_type_managers
            )
            self.queue.finish(
                serial,
                [(group, hashes[:filled]) for group, _, hashes in self._hashes(request)],
                self._now,
            )

    @property
    def observes_finish(self) -> bool:
        """Whether anyone wants to know which blocks a request leaves behind."""
        return self.queue.observes_finish

    def reset(self) -> None:
        """The prefix cache was reset."""
        self.queue.sync()

    def shutdown(self) -> None:
        """The engine stops."""

    def make_stats(self) -> dict[str, Any]:
        """What happened since the last call, for `SchedulerStats`.

        Returns:
            `policy`: the one that is live. `evictions`: blocks whose content was
            dropped to make room. `rereferences`: queried blocks that were found
            among the ghosts; None for a policy without ghosts. `failures`: times
            that LRU had to take over.

        """
        totals = {
            "evictions": self.queue.evictions,
            "rereferences": self.queue.ghost_hits,
            "failures": self._failures,
        }
        stats: dict[str, Any] = {
            name: total - self._reported[name] for name, total in totals.items()
        }
        self._reported = totals
        stats["policy"] = self.live_policy
        if self.queue.ghost_limit == 0:
            stats["rereferences"] = None
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
        if action == "kill":
            if not self.queue.failure:
                logger.warning(
                    "Prefix cache eviction policy: %s -> lru (killed by the operator).",
                    self.live_label,
                )
                self._killed = self.stopped = True
                self.queue.attach(None)
                self.queue.use_lru("killed by the operator")
        elif action in ("pin", "release"):
            raise ValueError(
                f"Cannot {action}: the policy is {self.policy!r}, only "
                f"--eviction-policy {MANAGER} can."
            )
        elif action != "status":
            raise ValueError(
                f"Unknown action {action!r}: choose from status, pin, release, kill."
            )
        return self.status()

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, fit for JSON."""
        return {
            "policy": self.policy,
            "live": self.live_policy,
            "killed": self._killed,
            "failure": (not self._killed and self.queue.failure) or None,
            "evictions": self.queue.evictions,
            "rereferences": self.queue.ghost_hits if self.queue.ghost_limit else None,
            "free_blocks": self.queue.num_free_blocks,
        }

    def _report_failure(self, text: str, *arguments: Any) -> None:
        """Log once, count, and stop deciding."""
        if self.stopped:
            return
        self.stopped = True
        self._failures += 1
        logger.error(text, *arguments)

    def _hashes(self, request: "Request") -> list[tuple[int, int, list[bytes]]]:
        """Of each group: id, block size, and the hash of each full block."""
        hashes = request.block_hashes
        return [
            (group, size, hashes if every == 1 else hashes[every - 1 :: every])
            for group, size, every in self._groups
        ]


def control_eviction(scheduler: "Scheduler", command: dict[str, Any]) -> dict[str, Any]:
    """Obey an operator, also where there are no hooks.

    Returns:
        The status, or `{"error": ...}` with one line. Never raises: the caller is
        the engine core.

    """
    hooks = getattr(scheduler, "eviction", None)
    try:
        if hooks is not None:
            return hooks.control(command)
        if command.get("action") in ("status", "kill"):
            return {"policy": DEFAULT_POLICY, "live": DEFAULT_POLICY}
        return {"error": f"The policy is {DEFAULT_POLICY!r}, vLLM's own queue."}
    except ValueError as error:
        return {"error": str(error)}
    except Exception as error:
        logger.exception("Eviction control failed.")
        return {"error": repr(error)}
