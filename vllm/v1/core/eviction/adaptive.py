# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The adaptive manager: shadows the candidates and follows the best.

The scheduler calls the hooks; they write events for the shadows and go on. At
intervals the manager asks the shadows for their counts, looks for the answer in a
later step, and puts it before the rule. When the rule names another candidate the
order of its shadow is handed over, in slices, while the old one goes on serving.
Nothing here waits, and nothing that fails here reaches a request: the policy that
is live stays.

What happens in one scheduler step is bounded; the most is one slice of a hand-over.
(docs/adaptive.md has the times.)
"""

import reprlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm._eviction_C import ShadowHost
from vllm.logger import init_logger

from vllm.v1.core.eviction.adaptive_config import (
    AdaptiveConfig,
    Candidate,
    make_rule,
    resolve_candidates,
    resolve_rule,
)
from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.decision_log import DecisionLog
from vllm.v1.core.eviction.free_queue import PolicyFreeQueue
from vllm.v1.core.eviction.hand_over import HandOver
from vllm.v1.core.eviction.hooks import EvictionHooks
from vllm.v1.core.eviction.rank_file import config_of_rank
from vllm.v1.core.eviction.recompute_cost import prefill_cost
from vllm.v1.core.eviction.registry import MANAGER, get_policy, native_parameters
from vllm.v1.core.eviction.rules import CountsSince, Decision, Rule, weighed
from vllm.v1.core.eviction.state_file import ShadowModel, StateKeeper, load_state
from vllm.v1.core.eviction.windows import group_windows

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

logger = init_logger(__name__)

_GROWTH_SECONDS = 1.0
"""How often the shadows learn how many blocks running requests hold."""
_IDLE_SECONDS = 1.0
"""How long an operator's pin may take when nothing is served."""


def attach_adaptive(scheduler: "Scheduler") -> "AdaptiveHooks":
    """Put the first candidate in place and start the shadows.

    Raises:
        ValueError: The model's KV-cache groups cannot be shadowed; one line.

    """
    cache_config = scheduler.vllm_config.cache_config
    config = parse_config(MANAGER, cache_config.eviction_config)
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    block_size, windows = group_windows(manager)
    parallel = scheduler.vllm_config.parallel_config
    candidates = [
        replace(each, config=config_of_rank(each.config, parallel))
        for each in resolve_candidates(config.candidates)
    ]
    window = cache_config.eviction_window
    cost = prefill_cost(scheduler.vllm_config).cost
    holes = None if manager.hole_filler is None else manager.hole_filler.rule
    host = ShadowHost(
        num_blocks=pool.num_gpu_blocks - 1,  # all but the null block
        block_size=block_size,
        candidates=[
            (candidate.name, native_parameters(candidate.name, candidate.config, holes))
            for candidate in candidates
        ],
        windows=windows,
        holes=holes,
        threaded=config.threaded,
        record_window=resolve_rule(config, window) == "paper",
        cost=cost,
    )
    keepers = []
    for i, each in enumerate(candidates):
        if path := each.config.get("state_file"):
            shadow = ShadowModel(host, i)
            load_state(shadow, each.name, path)
            keepers.append(StateKeeper(shadow, each.name, path))
    first = candidates[0]
    # Its state file was read for its shadow.
    anew = {key: value for key, value in first.config.items() if key != "state_file"}
    policy = get_policy(first.name).make(
        pool.num_gpu_blocks, parse_config(first.name, anew, holes)
    )
    policy.load_model(host.model(0))
    queue = PolicyFreeQueue(pool, policy, cost=cost)
    queue.attach(host)
    pool.free_block_queue = queue
    logger.info(
        "Prefix cache eviction policy: adaptive among %s by rule %s%s, %d blocks, "
        "%.1f MiB of metadata, %.1f MiB of shadows.",
        ", ".join(candidate.label for candidate in candidates),
        resolve_rule(config, window),
        " (dry run)" if config.dry_run else "",
        pool.num_gpu_blocks,
        queue.bytes / 2**20,
        host.bytes / 2**20,
    )
    hooks = AdaptiveHooks(scheduler, config, window, candidates, queue, host)
    hooks.state_keepers = keepers
    return hooks


class AdaptiveHooks(EvictionHooks):
    """The hooks of the scheduler under `adaptive`.

    Args:
        scheduler: The engine's.
        config: Of the manager.
        window: `--eviction-window`, seconds, or None.
        candidates: The first is live.
        queue: The pool's free queue, with the first candidate's policy.
        host: The shadows, fed through the queue.

    """

    def __init__(
        self,
        scheduler: "Scheduler",
        config: AdaptiveConfig,
        window: float | None,
        candidates: list[Candidate],
        queue: PolicyFreeQueue,
        host: ShadowHost,
    ):
        super().__init__(MANAGER, queue, scheduler.kv_cache_manager)
        self.config = config
        self.candidates = candidates
        self.host = host
        self.live = 0
        labels = [candidate.label for candidate in candidates]
        self.decisions = DecisionLog(labels, config.objective)
        self._scheduler = scheduler
        self._window = window
        self._rule: Rule | None = None  # made at the first step: it needs the time
        self._since = CountsSince()
        self._starts = False  # the next answer is where the rule's counts start
        self._live_since: float | None = None
        self._switches = dict.fromkeys(labels, 0)
        self._totals: tuple[int, list[int]] = (0, [0] * len(candidates))
        self._compute: tuple[float, list[float]] = (0.0, [0.0] * len(candidates))
        self._free_sum = 0
        self._free_samples = 0
        self._mark: int | None = None  # asked for, not answered yet
        self._mark_decides = False
        self._next_look = 0.0
        self._next_growth = 0.0
        self._hand_over: HandOver | None = None
        self._pinned: int | None = None
        self._seconds = 0.0
        self._shadow_reported: dict[str, Any] = {}

    @property
    def live_label(self) -> str:
        """Label of the candidate that is live."""
        return self.candidates[self.live].label

    def _on_step(self, now: float) -> None:
        if now < self._now:  # the clock went back, and all times with it
            self._rule = None
            self._next_growth = self._live_since = now
        super()._on_step(now)
        started = time.perf_counter()
        if not self.stopped:
            self._manage(now)
        self._seconds += time.perf_counter() - started

    def _on_admission(
        self, serial: int, request: "Request", num_hit_tokens: int
    ) -> None:
        started = time.perf_counter()
        super()._on_admission(serial, request, num_hit_tokens)
        self._free_sum += self.queue.num_free_blocks
        self._free_samples += 1
        self._seconds += time.perf_counter() - started

    def _on_end(self, serial: int, request: "Request") -> None:
        started = time.perf_counter()
        super()._on_end(serial, request)
        self._seconds += time.perf_counter() - started

    @property
    def observes_end(self) -> bool:
        # Without shadows, what is live may want to know still.
        return not self.stopped or super().observes_end

    def _on_reset(self) -> None:
        """So are the shadows, and the rule."""
        super()._on_reset()
        self._rule = None
        self._abandon_hand_over()
        if self._pinned not in (None, self.live):
            self._start_hand_over(self._pinned, self._now)

    # ---- One step. ----

    def _manage(self, now: float) -> None:
        if self._rule is None:
            self._rule = make_rule(self.config, self._window, len(self.candidates), now)
            self._next_look = min(now + self.config.interval, self._rule.next_decision)
            self._mark = self.host.mark()
            self._mark_decides, self._starts = False, True
            if self._live_since is None:
                self._live_since = now
        if failure := self.host.failure:
            self._report_failure(failure, self.live_label)
            return
        if now >= self._next_growth:
            self._next_growth = now + _GROWTH_SECONDS
            self._grow()
        if self._hand_over is not None:
            self._continue_hand_over(now)
        if self._mark is None and now >= self._next_look:
            self._ask(now)
        if self._mark is not None:
            self._look_for_answer(now)

    def _grow(self) -> None:
        for request in self._scheduler.running:
            serial = self._admitted.get(request.request_id)
            if serial is not None:
                blocks = self._manager.get_blocks(request.request_id).blocks
                self.queue.grow(serial, max(len(group) for group in blocks))

    def _ask(self, now: float) -> None:
        assert self._rule is not None
        self._mark_decides = now >= self._rule.next_decision
        replay_blocks = 0
        if self._rule.reads_replay and self._mark_decides:
            replay_blocks = max(1, self._free_sum // max(1, self._free_samples))
            self._free_sum = self._free_samples = 0
        self._mark = self.host.mark(replay_blocks)

    def _look_for_answer(self, now: float) -> None:
        assert self._rule is not None
        answer = self.host.poll_answer()
        if answer is None or answer[0] != self._mark:
            return
        _, queries, hits, cost, saved = answer
        if len(hits) != len(self.candidates):
            raise RuntimeError(f"the shadows answered {hits}")
        self._mark = None
        replayed = self._rule.reads_replay and self._mark_decides
        if not replayed:
            self._totals = (queries, hits)
            self._compute = (cost, saved)
        # What the rule is told of from here on.
        _, block_size, _ = self._groups[0]
        queries, hits = weighed(
            self.config.objective, (queries, hits), (cost, saved), block_size
        )
        if self._starts:
            self._starts = False
            self._since.take(queries, hits)
        if self._mark_decides:
            since = CountsSince() if replayed else self._since
            counts = since.take(queries, hits)
            self._follow(self._rule.decide(now, self._coming, counts), now)
        self._next_look = min(now + self.config.interval, self._rule.next_decision)

    def _follow(self, decision: Decision, now: float) -> None:
        follows = self._pinned is None and not self.config.dry_run
        coming = self._coming
        switches = follows and decision.choice not in (self.live, coming)
        self.decisions.add(decision, self.live, switches)
        if switches:
            self._start_hand_over(decision.choice, now)
        elif follows and decision.choice == self.live != coming:
            logger.info(
                "Prefix cache eviction policy: %s stays after all.", self.live_label
            )
            self._abandon_hand_over()

    # ---- Hand-over. ----

    @property
    def _coming(self) -> int:
        """The candidate that is live, or will be in some steps."""
        return self.live if self._hand_over is None else self._hand_over.candidate

    def _start_hand_over(self, choice: int, now: float) -> None:
        self._abandon_hand_over()  # one that is under way starts anew
        self._hand_over = HandOver(self.queue, choice)
        if self.config.threaded:
            return
        # If the shadows fail meanwhile, the next step deals with it.
        while self._hand_over is not None and not self.host.failure:
            self._continue_hand_over(now)

    def _continue_hand_over(self, now: float) -> None:
        assert self._hand_over is not None
        if self._hand_over.advance():
            self.live = self._hand_over.candidate
            self._live_since = now
            self._switches[self.live_label] += 1
            self._hand_over = None

    def _abandon_hand_over(self) -> None:
        if self._hand_over is not None:
            self._hand_over.abandon()
            self._hand_over = None

    def _stop_deciding(self) -> None:
        super()._stop_deciding()
        self._abandon_hand_over()
        self._pinned = None

    # ---- The operator's view. ----

    def control(self, command: dict[str, Any]) -> dict[str, Any]:
        action = command.get("action")
        if action == "pin":
            self._pin(command.get("policy"))
        elif action == "release":
            if self._pinned is not None:
                logger.info(
                    "Prefix cache eviction policy: %s (released by the operator).",
                    self.live_label,
                )
            self._pinned = None
        else:
            return super().control(command)
        return self.status()

    def _pin(self, policy: Any) -> None:
        if self.stopped:
            raise ValueError("Cannot pin: the manager has stopped.")
        labels = [candidate.label for candidate in self.candidates]
        if policy not in labels:
            raise ValueError(
                f"Cannot pin {reprlib.repr(policy)}: choose from {', '.join(labels)}."
            )
        self._pinned = labels.index(policy)
        logger.info(
            "Prefix cache eviction policy: %s -> %s (pinned by the operator).",
            self.live_label,
            policy,
        )
        self._abandon_hand_over()
        if self._pinned != self.live:
            try:
                self._start_hand_over(self._pinned, self._now)
                self._finish_if_idle()
            except Exception as error:
                self._on_failure(error)

    def _finish_if_idle(self) -> None:
        """Without requests no step would come to carry a hand-over on."""
        end = time.monotonic() + _IDLE_SECONDS
        while (
            self._hand_over is not None
            and not self._scheduler.has_unfinished_requests()
            and time.monotonic() < end
        ):
            self._continue_hand_over(self._now)
            time.sleep(0.001)

    def status(self) -> dict[str, Any]:
        queries, hits = self._totals
        cost, saved = self._compute
        pinned = None if self._pinned is None else self.candidates[self._pinned].label
        target = (
            None
            if self._hand_over is None
            else self.candidates[self._hand_over.candidate].label
        )
        return super().status() | {
            "live_seconds": round(self._now - (self._live_since or self._now), 3),
            "rule": resolve_rule(self.config, self._window),
            "objective": self.config.objective,
            "window": self._window,
            "dry_run": self.config.dry_run,
            "pinned": pinned,
            "switching_to": target,
            "next_decision_in": (
                round(max(0.0, self._rule.next_decision - self._now), 3)
                if self._rule is not None and not self.stopped
                else None
            ),
            "candidates": {
                candidate.label: {
                    "policy": candidate.name,
                    "config": candidate.config,
                    "shadow_hit_rate": round(hits[i] / queries, 4) if queries else None,
                    "shadow_compute_savings": round(saved[i] / cost, 4)
                    if cost
                    else None,
                    "switches": self._switches[candidate.label],
                }
                for i, candidate in enumerate(self.candidates)
            },
            "shadow_query_tokens": queries,
            "dropped_admissions": self.host.dropped,
            "decisions": list(self.decisions.entries),
        }

    def _stats(self) -> dict[str, Any]:
        """See `EvictionHooks._stats`. Also, since the last call:

        Returns:
            `shadow_queries` and, by label, `shadow_hits` in tokens; `shadow_compute`
            and, by label, `shadow_saved` in tokens as dear as the first ones, of full
            blocks only; `switches` by label;
            `seconds` that the hooks took on the scheduler's thread, and
            `shadow_seconds` on the shadows' own; `dropped` admissions.

        """
        queries, hits = self._totals
        cost, saved = self._compute
        _, block_size, _ = self._groups[0]
        labels = [candidate.label for candidate in self.candidates]
        return super()._stats() | self._deltas(
            {
                "shadow_queries": queries,
                "shadow_hits": dict(zip(labels, hits, strict=True)),
                "shadow_compute": cost * block_size,
                "shadow_saved": {
                    label: each * block_size
                    for label, each in zip(labels, saved, strict=True)
                },
                "switches": dict(self._switches),
                "seconds": self._seconds,
                "shadow_seconds": self.host.busy_seconds,
                "dropped": self.host.dropped,
            }
        )

    def _deltas(self, totals: dict[str, Any]) -> dict[str, Any]:
        before, self._shadow_reported = self._shadow_reported, totals
        return {
            key: {
                label: value - before.get(key, {}).get(label, 0)
                for label, value in total.items()
            }
            if isinstance(total, dict)
            else total - before.get(key, 0)
            for key, total in totals.items()
        }
