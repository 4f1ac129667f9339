# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction describe`: each measure by hand on a trace of a few requests."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.word_traces import trace_of
from vllm.benchmarks.eviction.character import (
    blocks_of,
    reuse_odds,
    sessions_of,
    working_sets,
)
from vllm.benchmarks.eviction.describe import describe


def values_of(trace):
    return {row["measure"]: row["value"] for row in describe(trace)}


def test_lifetimes_and_intervals_are_told_apart_by_uses():
    # At 0, 10, 20... seconds: a four times, b twice, 30 s apart, c once.
    values = values_of(trace_of(["ab", "a", "a", "ab", "c"], seconds=10.0))
    assert values["distinct prompt blocks"] == 3
    assert values["used once"] == pytest.approx(1 / 3)
    assert values["lifetime of reused blocks p50"] == 30
    assert values["reuse interval of blocks used 2 times p50"] == 30
    assert values["reuse interval of blocks used 3-4 times p50"] == 10
    assert values["lifetime of blocks used 3-4 times p50"] == 30
    assert values["used again after 1"] == pytest.approx(2 / 3)
    assert values["used again after 2"] == 1 / 2
    assert values["used again after 3"] == 1
    assert values["used again after 4"] == 0
    assert "used again after 8" not in values


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_the_odds_of_a_reuse_are_counted(uses):
    odds = reuse_odds(np.array(uses), 12)
    for n in range(1, 13):
        reached = [each for each in uses if each >= n]
        if reached:
            more = sum(each > n for each in reached)
            assert odds[n - 1] == pytest.approx(more / len(reached))
        else:
            assert np.isnan(odds[n - 1])


def test_overlap_is_what_two_windows_share_of_what_either_has():
    # 1,200 s are four windows of 300 s and the beginning of a fifth: ab, ac, c, -, d.
    trace = trace_of(["a", "b", "a", "c", "c", "d"])
    trace.arrivals[:] = [0.0, 299.0, 300.0, 599.0, 600.0, 1200.0]
    sets = working_sets(trace, blocks_of(trace))
    assert sets.window == 300
    assert sets.sizes.tolist() == [2, 2, 1, 0, 1]
    assert sets.lags.tolist() == [1, 2, 4]
    # ab with ac 1/3, ac with c 1/2, c with nothing 0, nothing with d 0.
    assert sets.overlap.tolist() == pytest.approx([(1 / 3 + 1 / 2) / 4, 0, 0])


def test_a_short_trace_is_cut_into_24_windows():
    trace = trace_of(["a", "b"] * 12, seconds=1.0)
    sets = working_sets(trace, blocks_of(trace))
    assert sets.window == pytest.approx(23 / 24)
    assert sets.sizes.sum() == 24


def test_sessions_are_measured_where_all_requests_have_one():
    trace = trace_of(["a", "ab", "c", "abc", "cd"], seconds=10.0)
    assert sessions_of(trace) is None
    trace.sessions[:] = [3, 3, 8, 3, 8]
    sessions = sessions_of(trace)
    assert sessions.turns.tolist() == [3, 2]
    assert sessions.durations.tolist() == [30, 20]
    assert sorted(sessions.gaps.tolist()) == [10, 20, 20]
    assert sessions.footprints.tolist() == [3, 2]
    assert sessions.shares().tolist() == [3 / 5, 1]
    values = values_of(trace)
    assert values["gap in a session p50"] == 20
    assert values["blocks of one multi-turn session only"] == 1
    assert values["single-turn"] == 0


def test_prompts_without_a_full_block_are_described():
    values = values_of(trace_of(["", ""]))
    assert values["requests"] == 2
    assert values["prompt blocks"] == 0
    assert values["infinite cache"] == 0


@pytest.mark.parametrize(("with_sessions", "panels"), [(False, 6), (True, 9)])
def test_the_figure_has_a_panel_for_each_measure(
    lab, write, tmp_path, with_sessions, panels
):
    lines = [
        {
            "timestamp": 1000 * i,
            "input_length": 1024,
            "output_length": 1,
            "hash_ids": [1, 2 + i % 7],
            **({"session": i % 5} if with_sessions else {}),
        }
        for i in range(40)
    ]
    plot = tmp_path / "day.svg"
    assert lab("describe", write(*lines), "--plot", plot) == 0
    assert len(set(re.findall(r'id="axes_\d+"', plot.read_text()))) == panels


def test_a_plot_that_cannot_be_drawn_is_one_line(lab, write, capsys):
    line = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    assert lab("describe", write(line), "--plot", "day.bmp") == 2
    assert "--plot is day.bmp: must end in" in capsys.readouterr().err


def test_the_rows_are_those_of_the_json(lab, write, capsys):
    line = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    assert lab("describe", write(line), "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"measure": "requests", "value": 1, "unit": "requests"} in rows
