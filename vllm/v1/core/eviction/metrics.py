# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How the front end shows what the core counted.

The core never talks to Prometheus: it puts a few numbers into `SchedulerStats`.
Under the untouched `lru` nothing is counted, and so the counters do not exist.
"""

from collections.abc import Callable
from typing import Any

from vllm.config import VllmConfig

from vllm.v1.core.eviction.adaptive_config import resolve_candidates
from vllm.v1.core.eviction.config import may_fill_holes, parse_config
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER, get_policy

_COUNTERS = {
    "evictions": (
        "vllm:prefix_cache_evictions",
        "Cached blocks that were evicted to make room.",
    ),
    "rereferences": (
        "vllm:prefix_cache_evicted_rereferences",
        "Queried blocks that had been evicted shortly before.",
    ),
    "failures": (
        "vllm:prefix_cache_eviction_policy_failures",
        "Times that a policy failed and LRU order, or what was live, took over.",
    ),
    "saved_compute": (
        "vllm:prefix_cache_saved_compute",
        "What cached blocks saved, in prompt tokens as dear as the first ones.",
    ),
}
_HOLE_COUNTERS = {
    "holes": (
        "vllm:prefix_cache_holes",
        "Gaps before cached blocks that are reused.",
    ),
    "hole_tokens": (
        "vllm:prefix_cache_hole_tokens",
        "Prompt tokens that are computed to fill them.",
    ),
}
_REQUEST_HOLES = (
    "vllm:request_prefix_cache_holes",
    "Gaps that are filled in a request's prompt, of requests with at least one.",
)
_HOLE_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_ADAPTIVE_COUNTERS = {
    "shadow_queries": (
        "vllm:prefix_cache_shadow_queries",
        "Prompt tokens that the shadows were asked for.",
    ),
    "shadow_compute": (
        "vllm:prefix_cache_shadow_compute",
        "What these prompts cost to compute, in tokens as dear as the first ones.",
    ),
    "seconds": (
        "vllm:prefix_cache_eviction_seconds",
        "Time that the adaptive manager took on the scheduler's thread.",
    ),
    "shadow_seconds": (
        "vllm:prefix_cache_shadow_seconds",
        "Time that the shadows took on their own thread.",
    ),
    "dropped": (
        "vllm:prefix_cache_shadow_dropped",
        "Admissions that the shadows missed because they were too far behind.",
    ),
}
_CANDIDATE_COUNTERS = {
    "shadow_hits": (
        "vllm:prefix_cache_shadow_hits",
        "Prompt tokens that would have been hits under the policy.",
    ),
    "shadow_saved": (
        "vllm:prefix_cache_shadow_compute_saved",
        "Of that, what would have been saved under the policy.",
    ),
    "switches": (
        "vllm:prefix_cache_policy_switches",
        "Changes of the live policy to this one.",
    ),
}


class EvictionProm:
    """Prometheus metrics of the prefix cache's eviction.

    Args:
        vllm_config: Says which policy is configured.
        labelnames: Of all vLLM's metrics.
        per_engine_labelvalues: Engine index to the values of those labels.
        counter_cls: Prometheus' or Ray's.
        gauge_cls: The same.
        histogram_cls: The same.

    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
        counter_cls: Callable[..., Any],
        gauge_cls: Callable[..., Any],
        histogram_cls: Callable[..., Any],
    ):
        self._engines = per_engine_labelvalues
        self._counters: dict[str, dict[int, Any]] = {}
        self._candidate_counters: dict[str, Any] = {}
        self._gauge: Any = None
        self._request_holes: dict[int, Any] = {}
        self._live: dict[int, str] = {}
        cache_config = vllm_config.cache_config
        if not cache_config.enable_prefix_caching:
            return
        self._gauge = gauge_cls(
            name="vllm:prefix_cache_eviction_policy",
            documentation="Eviction policy of the prefix cache: 1 for the live one.",
            multiprocess_mode="mostrecent",
            labelnames=[*labelnames, "policy"],
        )
        policy = cache_config.eviction_policy
        labels = [policy]
        wanted = dict(_COUNTERS)
        if policy == MANAGER:
            config = parse_config(MANAGER, cache_config.eviction_config)
            labels = [item.label for item in resolve_candidates(config.candidates)]
            wanted |= _ADAPTIVE_COUNTERS
        elif policy == DEFAULT_POLICY:
            wanted = {}
        elif not get_policy(policy).ghosts:
            del wanted["rereferences"]  # absent, not zero
        if wanted and may_fill_holes(cache_config):
            wanted |= _HOLE_COUNTERS
            name, text = _REQUEST_HOLES
            histogram = histogram_cls(
                name=name,
                documentation=text,
                buckets=_HOLE_BUCKETS,
                labelnames=labelnames,
            )
            self._request_holes = {
                engine: histogram.labels(*values)
                for engine, values in per_engine_labelvalues.items()
            }
        for key, (name, text) in wanted.items():
            counter = counter_cls(name=name, documentation=text, labelnames=labelnames)
            self._counters[key] = {
                engine: counter.labels(*values)
                for engine, values in per_engine_labelvalues.items()
            }
        if policy == MANAGER:
            for key, (name, text) in _CANDIDATE_COUNTERS.items():
                self._candidate_counters[key] = counter_cls(
                    name=name, documentation=text, labelnames=[*labelnames, "policy"]
                )
        # Every series exists from the start, so that rates have a beginning.
        for engine, values in per_engine_labelvalues.items():
            for label in labels:
                self._gauge.labels(*values, label).set(0)
                for counter in self._candidate_counters.values():
                    counter.labels(*values, label)
            self._set_live(engine, labels[0])

    def observe(self, stats: dict[str, Any] | None, engine_idx: int = 0) -> None:
        """Count what one step of one engine reported."""
        if stats is None or self._gauge is None:
            return
        for key, counters in self._counters.items():
            if stats.get(key):
                counters[engine_idx].inc(stats[key])
        if self._request_holes:
            for holes, requests in stats.get("request_holes", {}).items():
                for _ in range(requests):
                    self._request_holes[engine_idx].observe(holes)
        for key, counter in self._candidate_counters.items():
            for label, value in stats.get(key, {}).items():
                if value:
                    counter.labels(*self._engines[engine_idx], label).inc(value)
        if stats["policy"] != self._live[engine_idx]:
            self._set_live(engine_idx, stats["policy"])

    def _set_live(self, engine: int, policy: str) -> None:
        labels = self._engines[engine]
        if before := self._live.get(engine):
            self._gauge.labels(*labels, before).set(0)
        self._gauge.labels(*labels, policy).set(1)
        self._live[engine] = policy


class EvictionLogging:
    """The line of the periodic log; none under `lru`."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._policy: str | None = None
        self._evictions = 0
        self._rereferences: int | None = None

    def observe(self, stats: dict[str, Any] | None) -> None:
        """Add what one step reported."""
        if stats is None or "evictions" not in stats:  # vLLM's own queue
            return
        self._policy = stats["policy"]
        self._evictions += stats["evictions"]
        if stats["rereferences"] is not None:
            self._rereferences = (self._rereferences or 0) + stats["rereferences"]

    def log(self, log_fn: Callable[..., None], log_prefix: str = "") -> None:
        """Log the interval since the last call and start a new one."""
        if self._policy is None:
            return
        parts = ["Prefix cache eviction policy: %s", "Evictions: %d blocks"]
        args: list[Any] = [self._policy, self._evictions]
        if self._rereferences is not None:
            parts.append("Evicted and asked for again: %d blocks")
            args.append(self._rereferences)
        log_fn(log_prefix + ", ".join(parts), *args)
        self._reset()
