# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`adaptive` against the static policies it chooses between: three mixes of an hour and
a drift of two. The whole grid is `benchmarks/regret.py`."""

from functools import cache

import pytest
from regret import RULES, Task, run, summarise

STATICS = ("lru", "s3fifo")
MIXES = ["0/100/0", "0/0/100", "33/33/33"]
DRIFT = "ASASAS"


@cache
def figures() -> dict[str, dict[str, float]]:
    """For each rule, in points of hit rate; see `benchmarks/regret.py`."""
    scenarios = [(mix, False) for mix in MIXES] + [(DRIFT, True)]
    tasks = [
        Task("P1", name, drifts, 1, tuple(RULES), STATICS, "pool")
        for name, drifts in scenarios
    ]
    return summarise([run(task) for task in tasks], tuple(RULES), STATICS)


def test_these_mixes_want_different_policies() -> None:
    for static in STATICS:
        assert figures()[static]["max_gap"] > 5


@pytest.mark.parametrize(
    ("rule", "mean", "most"), [("discounted", 0.15, 1.5), ("window", 0.7, 2.1)]
)
def test_it_is_hardly_behind_the_better_one(
    rule: str, mean: float, most: float
) -> None:
    assert figures()[rule]["mean_gap"] <= mean
    assert figures()[rule]["max_gap"] <= most


def test_it_is_nearer_than_the_paper() -> None:
    assert figures()["discounted"]["mean_gap"] < figures()["paper"]["mean_gap"] / 2


@pytest.mark.parametrize("rule", ["discounted", "window60"])
def test_on_drifting_traffic_it_beats_both(rule: str) -> None:
    assert figures()[rule]["drift_gain"] > 1


def test_a_window_as_long_as_a_drift_does_not() -> None:
    """Documented: who sets 900 s for traffic that changes every 20 minutes loses."""
    assert figures()["window"]["drift_gain"] < 0
