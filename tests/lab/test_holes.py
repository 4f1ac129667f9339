# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Holes in the lab: who has them filled, and what is counted."""

import numpy as np
import pytest

from tests.lab.word_traces import BLOCK, trace_of
from vllm.benchmarks.eviction.cost_models import LINEAR, UNIFORM, CostModel
from vllm.benchmarks.eviction.grid import make_row, run_one
from vllm.benchmarks.eviction.policy_list import LabPolicy, parse_policies
from vllm.benchmarks.eviction.service import Service
from vllm.v1.core.eviction.recompute_cost import UNCALIBRATED_STEP

LENGTH = 20
OFF = Service(hole_filling="off")
CHUNK_OF_8 = {"name": "partial-compute", "chunk": 8}
COLUMNS = (
    "holes",
    "hole_blocks",
    "holes_mean",
    "holes_p99",
    "holes_max",
    "hole_length",
    "filled_holes",
    "recomputed_tokens",
    "compute_saved",
)


def in_turn(rounds=8, seconds=5.0):
    """Ten prompts of twenty blocks in turn: LRU finds none in half of the room."""
    return trace_of([letter * LENGTH for letter in "abcdefghij"] * rounds, 1, seconds)


def replayed(name, service=Service(), capacity=100):  # noqa: B008 - frozen
    trace = in_turn()
    [policy] = parse_policies(name)
    result = run_one(trace, capacity, policy, None, LINEAR, service)
    return result, make_row(trace, capacity, policy, result, LINEAR)


@pytest.mark.parametrize(
    ("name", "capacity"), [("random-compute", 100), ("partial-compute:chunk=4", 190)]
)
def test_what_lies_behind_a_hole_is_found(name, capacity):
    plain, _ = replayed(name, OFF, capacity)
    filled, row = replayed(name, capacity=capacity)
    assert replayed("lru")[0].hit_blocks == 0
    assert filled.hit_blocks > plain.hit_blocks
    assert filled.saved > 0
    saved = row["compute_savings"] * LINEAR.of_prefixes(LENGTH, BLOCK)[-1]
    assert filled.saved == pytest.approx(saved * filled.requests)


def test_chunks_make_fewer_and_longer_holes_than_blocks():
    _, blocks = replayed("random-compute", capacity=190)
    _, chunks = replayed("partial-compute:chunk=8", capacity=190)
    assert chunks["holes_mean"] < blocks["holes_mean"]
    assert chunks["hole_length"] > blocks["hole_length"]


def test_a_chunk_is_what_a_step_of_prefill_computes_unless_it_is_given():
    step = Service(prefill_budget=8 * BLOCK)
    by_default, _ = replayed("partial-compute", step, 190)
    assert by_default == replayed("partial-compute:chunk=8", step, 190)[0]
    assert by_default != replayed("partial-compute:chunk=4", step, 190)[0]
    candidates = [["partial-compute", "lru"], [CHUNK_OF_8, "lru"]]
    for rule in ("discounted", "paper"):
        default, given = (
            run_one(
                in_turn(40),
                190,
                LabPolicy("adaptive", "adaptive", {"candidates": each, "rule": rule}),
                None,
                LINEAR,
                step,
            )
            for each in candidates
        )
        assert default == given and default.decisions


def test_the_columns_are_of_each_request():
    result, row = replayed("random-compute")
    each = result.request_holes
    missed = LENGTH - result.hits.astype(int)
    assert row["holes"] == each.sum() and each.max() > 1
    assert row["hole_blocks"] == missed.sum()
    assert row["holes_mean"] == each.mean()
    assert row["holes_p99"] == np.quantile(each, 0.99)
    assert row["holes_max"] == each.max()
    assert row["hole_length"] == missed.sum() / each.sum()
    # A hole without a hit behind it is computed in any engine.
    assert 0 < row["filled_holes"] < row["holes"]
    assert 0 < row["recomputed_tokens"] < BLOCK * row["hole_blocks"]
    assert row["compute_saved"] == result.saved


@pytest.mark.parametrize(
    ("name", "service"), [("lru", Service()), ("random-compute", OFF)]
)
def test_where_hits_are_prefixes_the_columns_are_empty(name, service):
    _, row = replayed(name, service)
    assert [row[column] for column in COLUMNS] == [None] * len(COLUMNS)


def test_a_hole_that_costs_more_than_it_saves_is_not_filled():
    dear, _ = replayed("random-compute", Service(hole_step=1e9))
    free, _ = replayed("random-compute", Service(hole_step=0.0))
    # A step for each block takes no further steps.
    many, _ = replayed("random-compute", Service(hole_step=1e9, prefill_budget=BLOCK))
    assert dear.filled_holes == 0
    assert many == free and free.filled_holes > 0


def test_the_rule_is_in_blocks():
    rule = Service(prefill_budget=100, hole_step=32.0).hole_rule(UNIFORM, 16)
    # 6 blocks a step, a step costs 2 blocks. A run of 2 saves too little for another.
    cached = bytes([0, 1, 1, 0, 0])
    assert rule.runs(cached, 0, 6) == []
    assert rule.runs(cached, 0, 7) == [(1, 3)]
    assert rule.runs(bytes([0, 1, 1, 1, 0]), 0, 6) == [(1, 4)]
    assert Service(hole_filling="off").hole_rule(UNIFORM, 16) is None


def test_a_step_costs_as_much_as_the_engine_believes():
    assert UNIFORM.step_tokens == LINEAR.step_tokens == UNCALIBRATED_STEP


def test_a_step_costs_what_was_measured_unless_it_is_said():
    measured = CostModel("measured", 0.0, step_tokens=64.0)
    cached = bytes([0, 1, 1, 1, 0])
    assert Service().hole_rule(UNIFORM, 16).runs(cached, 0, 6) == []
    assert Service(hole_step=32.0).hole_rule(UNIFORM, 16).runs(cached, 0, 6) == [(1, 4)]
    assert Service().hole_rule(measured, 16).runs(cached, 0, 6) == []
    cheap = CostModel("cheap", 0.0, step_tokens=32.0)
    assert Service().hole_rule(cheap, 16).runs(cached, 0, 6) == [(1, 4)]


@pytest.mark.parametrize("objective", ["tokens", "compute"])
def test_adaptive_fills_the_holes_of_who_is_live(objective):
    """By tokens too, because LRU finds nothing here."""
    config = {"candidates": ["lru", "random-compute"], "objective": objective}
    policy = LabPolicy("adaptive", "adaptive", config)
    result = run_one(in_turn(40), 100, policy, 60.0, LINEAR)
    assert [name for _, name in result.switches] == ["random-compute"]
    assert result.filled_holes > 0


def test_the_rule_of_the_paper_cannot_weigh(lab, write, capsys):
    words = ["--capacity", 9, "--policies", "adaptive:rule=paper:objective=compute"]
    assert lab("replay", write(), *words) == 2
    assert "objective is 'compute', but the rule 'paper'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--prefill-budget", "0"], "--prefill-budget is 0: must be 1 or more."),
        (["--hole-step", "-1"], "--hole-step is -1: must be 0 or more."),
        (["--hole-step", "nan"], "--hole-step is nan: must be 0 or more."),
    ],
)
def test_a_fault_is_one_line(lab, write, capsys, words, fault):
    trace = write({"timestamp": 0, "input_length": 9, "output_length": 1})
    assert lab("replay", trace, "--capacity", 9, *words) == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize("command", ["replay", "sweep"])
def test_the_table_shows_holes_only_where_they_are_filled(lab, write, capsys, command):
    lines = [
        {
            "timestamp": 5000 * i,
            "input_length": 512 * 9 + 1,
            "output_length": 1,
            "hash_ids": [100 * (i % 10) + j for j in range(1, 11)],
        }
        for i in range(40)
    ]
    path = write(*lines)
    size = ["--capacity", 60] if command == "replay" else ["--workers", 1]
    shown = []
    for filling in ("auto", "off"):
        words = ["--policies", "lru,random-compute", "--hole-filling", filling]
        assert lab(command, path, *size, *words) == 0
        shown.append("holes_mean" in capsys.readouterr().out)
    assert shown == [True, False]
