# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How the front end shows what the core counted.

The core never talks to Prometheus: it puts a few numbers into `SchedulerStats`.
Under the untouched `lru` nothing is counted, and so the counters do not exist.
"""

from collections.abc import Callable
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.eviction.registry import DEFAULT_POLICY


class EvictionProm:
    """Prometheus metrics of the prefix cache's eviction.

    Args:
        vllm_config: Says which policy is configured.
        labelnames: Of all vLLM's metrics.
        per_engine_labelvalues: Engine index to the values of those labels.
        counter_cls: Prometheus' or Ray's.
        gauge_cls: The same.

    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
        counter_cls: Callable[..., Any],
        gauge_cls: Callable[..., Any],
    ):
        self._engines = per_engine_labelvalues
        self._counters: dict[str, dict[int, Any]] = {}
        self._gauge: Any = None
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
        for engine in per_engine_labelvalues:
            self._set_live(engine, policy)
        if policy == DEFAULT_POLICY:
            return
        documentation = {
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
                "Times that a policy failed and LRU order took over.",
            ),
        }
        for key, (name, text) in documentation.items():
            counter = counter_cls(name=name, documentation=text, labelnames=labelnames)
            self._counters[key] = {
                engine: counter.labels(*values)
                for engine, values in per_engine_labelvalues.items()
            }

    def observe(self, stats: dict[str, Any] | None, engine_idx: int = 0) -> None:
        """Count what one step of one engine reported."""
        if stats is None or self._gauge is None:
            return
        for key, counters in self._counters.items():
            if stats[key]:
                counters[engine_idx].inc(stats[key])
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
        if stats is None:
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
