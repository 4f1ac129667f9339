# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Figures and table, from runs made by hand."""

import io

import numpy as np
import pytest
from prefix_report import as_json, draw, figures_of, write_table
from prefix_runs import Run


def run(*ttft, cached):
    """Requests of a hundred prompt tokens and four answer tokens, over ten seconds."""
    n = len(ttft)
    return Run(
        ttft=np.array(ttft),
        latency=np.array(ttft) + 1.0,
        prompt=np.full(n, 100),
        cached=np.array(cached),
        output=np.full(n, 4),
        seconds=10.0,
        lateness=0.001,
        counters={"evictions": 7.0},
    )


LRU = [
    run(0.1, 0.3, 0.5, 0.9, cached=[0, 0, 50, 50]),
    run(0.1, 0.3, 0.5, 1.1, cached=[0, 0, 50, 50]),
]
OTHER = run(0.1, 0.2, 0.3, 0.4, cached=[0, 80, 80, 40])
IN_TURN = [{"lru": LRU[0]}, {"s3fifo": OTHER}, {"lru": LRU[1]}]
SIDE_BY_SIDE = [{"lru": LRU[0], "s3fifo": OTHER}, {"s3fifo": OTHER, "lru": LRU[1]}]


def test_figures_of_a_run():
    figures = figures_of(LRU[0])
    assert figures["ttft_mean"] == pytest.approx(450)
    assert figures["ttft_p50"] == pytest.approx(400)
    assert figures["ttft_p99"] == pytest.approx(888)
    assert figures["prefill_tokens"] == 300
    assert figures["hit_rate"] == 25
    assert figures["prompt_tokens_per_second"] == 40
    assert figures["output_tokens_per_second"] == pytest.approx(1.6)
    assert figures["in_flight"] == pytest.approx(0.58)
    assert figures["evictions"] == 7


def test_the_table_has_means_and_ranges_and_compares_with_the_first():
    file = io.StringIO()
    write_table(IN_TURN, file)
    heading, _, lru, other, empty, compared = file.getvalue().splitlines()
    assert heading.startswith("| policy | runs | TTFT mean, ms | p50 | p95 | p99 |")
    assert lru.startswith("| lru | 2 | 475 (450 to 500) | 400 | ")
    assert "| 300 | 25.0 |" in lru
    assert other.startswith("| s3fifo | 1 | 250 | 250 | ")
    assert empty == ""
    assert compared == (
        "s3fifo against lru: TTFT mean -47.4 %, TTFT p50 -37.5 %, TTFT p99 -59.7 %, "
        "prefill tokens computed -33.3 %."
    )


def test_what_ran_side_by_side_is_compared_pair_by_pair():
    """Mean TTFT 250 of 450 and of 500 ms: the geometric mean of the ratios is 0.527."""
    file = io.StringIO()
    write_table(SIDE_BY_SIDE, file)
    *_, compared = file.getvalue().splitlines()
    assert compared == (
        "s3fifo against lru, 2 pairs side by side: TTFT mean -47.3 % (-50.0 to -44.4), "
        "TTFT p50 -37.5 %, TTFT p99 -59.5 % (-63.3 to -55.3), "
        "prefill tokens computed -33.3 %."
    )


def test_json_says_what_ran_at_the_same_time():
    found = as_json(SIDE_BY_SIDE, {})["runs"]
    assert [run["heat"] for run in found["lru"]] == [0, 1]
    assert [run["heat"] for run in found["s3fifo"]] == [0, 1]
    found = as_json(IN_TURN, {})["runs"]
    assert [run["heat"] for run in found["lru"]] == [0, 2]


def test_json_has_every_run():
    found = as_json(IN_TURN, {"model": "m"})
    assert found["setting"] == {"model": "m"}
    assert [len(of) for of in found["runs"].values()] == [2, 1]
    assert found["runs"]["s3fifo"][0]["hit_rate"] == 50


def test_a_plot_is_drawn(tmp_path):
    path = tmp_path / "plot.png"
    draw(IN_TURN, path, "two policies")
    assert path.read_bytes().startswith(b"\x89PNG")
