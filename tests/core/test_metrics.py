# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the front end shows of the statistics that a core sends.

What cannot be counted is absent, not zero.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from vllm.v1.core.eviction.metrics import EvictionLogging, EvictionProm

GAUGE = "vllm:prefix_cache_eviction_policy"
EVICTIONS = "vllm:prefix_cache_evictions_total"
REREFERENCES = "vllm:prefix_cache_evicted_rereferences_total"
FAILURES = "vllm:prefix_cache_eviction_policy_failures_total"
SAVED = "vllm:prefix_cache_saved_compute_total"
HOLES = "vllm:prefix_cache_holes_total"
HOLE_TOKENS = "vllm:prefix_cache_hole_tokens_total"
REQUEST_HOLES = "vllm:request_prefix_cache_holes"


class Front:
    """A front end with metrics of its own, for one or more engines."""

    def __init__(self, policy: str, engines: int = 1, prefix_caching: bool = True):
        self.registry = CollectorRegistry()
        config: Any = SimpleNamespace(
            cache_config=SimpleNamespace(
                enable_prefix_caching=prefix_caching,
                eviction_policy=policy,
                eviction_config={},
                hole_filling="auto",
            )
        )
        self.prom = EvictionProm(
            config,
            ["model_name", "engine"],
            {index: ["tiny", str(index)] for index in range(engines)},
            partial(Counter, registry=self.registry),
            partial(Gauge, registry=self.registry),
            partial(Histogram, registry=self.registry),
        )

    def value(self, name: str, engine: int = 0, **labels: str) -> float | None:
        """One sample; None when there is no such series."""
        return self.registry.get_sample_value(
            name, {"model_name": "tiny", "engine": str(engine)} | labels
        )

    def names(self) -> set[str]:
        """All series that exist."""
        return {
            sample.name
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }


def stats(**changes: Any) -> dict[str, Any]:
    """What an engine with a policy of ours reports."""
    return {
        "policy": "s3fifo",
        "evictions": 0,
        "rereferences": 0,
        "failures": 0,
    } | changes


def test_lru_has_the_gauge_and_no_counter() -> None:
    front = Front("lru")
    assert front.names() == {GAUGE}
    assert front.value(GAUGE, policy="lru") == 1
    front.prom.observe(None)
    assert front.names() == {GAUGE}


@pytest.mark.parametrize("name", ["lru", "s3fifo"])
def test_without_prefix_caching_there_is_nothing(name: str) -> None:
    front = Front(name, prefix_caching=False)
    front.prom.observe(None)
    assert front.names() == set()


@pytest.mark.parametrize("name", ["s3fifo", "arc"])
def test_counters_begin_at_zero(name: str) -> None:
    front = Front(name)
    assert front.names() == {GAUGE, EVICTIONS, REREFERENCES, FAILURES, SAVED}
    counters = (EVICTIONS, REREFERENCES, FAILURES, SAVED)
    assert [front.value(counter) for counter in counters] == [0, 0, 0, 0]
    assert front.value(GAUGE, policy=name) == 1


@pytest.mark.parametrize("name", ["sieve", "test-fifo"])
def test_a_policy_without_ghosts_has_no_rereferences(name: str) -> None:
    front = Front(name)
    front.prom.observe(stats(policy=name, evictions=3, rereferences=None))
    assert front.names() == {GAUGE, EVICTIONS, FAILURES, SAVED}
    assert front.value(EVICTIONS) == 3


def test_every_policy_says_truly_whether_it_has_ghosts(chooser: str) -> None:
    from vllm.v1.core.eviction.registry import get_policy

    spec = get_policy(chooser)
    assert spec.ghosts is (spec.make(8, spec.config()).ghost_limit > 0)
    assert (REREFERENCES in Front(chooser).names()) is spec.ghosts


def test_deltas_add_up_for_each_engine() -> None:
    front = Front("s3fifo", engines=2)
    for engine, evictions in ((0, 5), (1, 1), (0, 2), (0, 0)):
        front.prom.observe(stats(evictions=evictions, rereferences=1), engine)
    assert [front.value(EVICTIONS, engine) for engine in (0, 1)] == [7, 1]
    assert [front.value(REREFERENCES, engine) for engine in (0, 1)] == [3, 1]


def test_a_step_without_statistics_changes_nothing() -> None:
    front = Front("s3fifo")
    front.prom.observe(stats(evictions=5))
    front.prom.observe(None)
    assert front.value(EVICTIONS) == 5


def test_a_failure_shows_and_flips_the_gauge_of_its_engine() -> None:
    front = Front("s3fifo", engines=2)
    front.prom.observe(stats(policy="lru", failures=1, rereferences=None), 1)
    assert [front.value(FAILURES, engine) for engine in (0, 1)] == [0, 1]
    live = [
        (front.value(GAUGE, e, policy="s3fifo"), front.value(GAUGE, e, policy="lru"))
        for e in (0, 1)
    ]
    assert live == [(1, None), (0, 1)]


def test_holes_are_counted_where_they_are_filled() -> None:
    front = Front("partial-compute")
    assert front.value(HOLES) == front.value(HOLE_TOKENS) == 0
    for requests in ({2: 1, 9: 2}, {}):
        front.prom.observe(
            stats(
                policy="partial-compute",
                saved_compute=1.5,
                holes=sum(size * number for size, number in requests.items()),
                hole_tokens=64 * len(requests),
                request_holes=requests,
            )
        )
    assert (front.value(HOLES), front.value(HOLE_TOKENS)) == (20, 128)
    assert front.value(SAVED) == 3.0
    buckets = [front.value(f"{REQUEST_HOLES}_bucket", le=le) for le in ("2.0", "16.0")]
    assert buckets == [1, 3]


def test_adaptive_shows_which_policy_is_live() -> None:
    front = Front("adaptive")
    candidates = {
        sample.labels["policy"]
        for family in front.registry.collect()
        for sample in family.samples
        if sample.name == GAUGE
    }
    assert len(candidates) > 1
    first, second = sorted(candidates)[:2]
    for live in (first, second, first):
        front.prom.observe(stats(policy=live, switches={live: 1}))
        shown = {c: front.value(GAUGE, policy=c) for c in candidates}
        assert shown == {c: float(c == live) for c in candidates}
    assert front.value("vllm:prefix_cache_policy_switches_total", policy=first) == 2


class Log:
    """What `log_fn` was given, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str, *arguments: Any) -> None:
        self.lines.append(text % arguments)


def test_the_log_has_one_line_for_an_interval() -> None:
    log, logging = Log(), EvictionLogging()
    logging.observe(stats(evictions=3, rereferences=1))
    logging.observe(None)
    logging.observe(stats(evictions=4, rereferences=0))
    logging.log(log, "Engine 000: ")
    (line,) = log.lines
    assert line.startswith("Engine 000: Prefix cache eviction policy: s3fifo")
    assert "Evictions: 7 blocks" in line and "asked for again: 1 blocks" in line


def test_the_next_interval_starts_from_nothing() -> None:
    log, logging = Log(), EvictionLogging()
    logging.observe(stats(evictions=3))
    logging.log(log)
    logging.observe(stats(evictions=1))
    logging.log(log)
    assert "Evictions: 1 blocks" in log.lines[1]


def test_under_lru_the_log_says_nothing() -> None:
    log, logging = Log(), EvictionLogging()
    logging.observe(None)
    logging.log(log)
    assert log.lines == []


def test_the_log_leaves_out_what_was_not_counted() -> None:
    log, logging = Log(), EvictionLogging()
    logging.observe(stats(policy="sieve", evictions=3, rereferences=None))
    logging.log(log)
    assert "asked for again" not in log.lines[0]


def test_the_log_names_the_policy_that_is_live() -> None:
    log, logging = Log(), EvictionLogging()
    logging.observe(stats(evictions=3))
    logging.observe(stats(policy="lru", failures=1, rereferences=None))
    logging.log(log)
    assert "policy: lru" in log.lines[0]
