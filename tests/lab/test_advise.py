# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction advise`: which policy, why, and the figures behind each word."""

import json

import numpy as np
import pytest

from vllm.benchmarks.eviction.advise import advise
from vllm.benchmarks.eviction.cost_models import LINEAR, UNIFORM
from vllm.benchmarks.eviction.policy_list import parse_policies
from vllm.benchmarks.eviction.replay import Candidate, replay
from vllm.benchmarks.eviction.slices import cut, stand
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.workloads import P1, Mix, constant, drift, generate

BLOCK = 16
STATICS = parse_policies("lru,s3fifo,arc")


def trace_of(requests):
    """Build a trace of (seconds, numbers of blocks), a path each."""
    requests = sorted(requests, key=lambda request: request[0])
    return Trace(
        block_size=BLOCK,
        arrivals=np.array([float(at) for at, _ in requests]),
        prompt_tokens=np.array([BLOCK * len(ids) + 1 for _, ids in requests], "u4"),
        output_tokens=np.ones(len(requests), np.uint32),
        offsets=np.cumsum([0, *(len(ids) for _, ids in requests)]).astype(np.uint64),
        keys=np.array([each for _, ids in requests for each in ids], np.uint64),
        sessions=np.full(len(requests), -1),
    )


def path(name, length):
    return [1000 * name + i + 1 for i in range(length)]


def recency(start, seconds):
    """A new path every 2 s, used once more 10 s later: made for lru."""
    for at in range(start, start + seconds, 2):
        yield at, path(at, 4)
        yield at + 10, path(at, 4)


@pytest.fixture(scope="module")
def shifting():
    """Agents and chats in turn."""
    return generate(P1.workload, drift("AMAM", 900.0))


def findings(advice):
    return {each.topic: each for each in advice.findings}


def test_one_policy_that_is_best_all_day_is_the_advice():
    advice = advise(trace_of(recency(0, 600)), 48, STATICS)
    assert (advice.policy.name, advice.window) == ("lru", None)
    assert "One policy is enough all day. Use lru" in findings(advice)["choice"].text


def test_policies_that_trade_places_call_for_adaptive(shifting):
    advice = advise(shifting, P1.num_blocks, STATICS)
    choice = findings(advice)["choice"]
    assert (advice.policy.name, advice.window) == ("adaptive", 60.0)
    assert choice.text.startswith("They trade places. Use adaptive with a window of 60")
    figures = choice.figures
    assert figures["adaptive_hit_rate"]["window 60"] > figures["best_hit_rate"]
    # The windows that the trace is four times as long as were tried.
    assert list(figures["adaptive_hit_rate"]) == [
        "discounted",
        "window 60",
        "window 300",
    ]


def test_a_window_asked_for_is_the_one_that_is_tried(shifting):
    choice = findings(advise(shifting, P1.num_blocks, STATICS, [120.0]))["choice"]
    assert list(choice.figures["adaptive_hit_rate"]) == ["discounted", "window 120"]


def test_where_nothing_is_told_apart_lru_is_the_advice():
    # Room for everything: all find the same.
    advice = advise(trace_of(recency(0, 100)), 1000, STATICS[::-1])
    assert advice.policy.name == "lru"
    assert findings(advice)["headroom"].figures["left_to_belady"] == 0


def test_the_figures_are_those_of_whole_replays():
    trace = generate(P1.workload, constant(Mix(50, 25, 25), 300.0))
    advice = advise(trace, 4000, STATICS)
    rates = findings(advice)["leader"].figures["hit_rate"]
    for name in ("lru", "s3fifo", "arc"):
        whole = replay(trace, 4000, Candidate(name))
        assert rates[name] == whole.hit_rate
        assert sum(advice.hits[name]) == whole.hit_blocks
    assert advice.slices.prompt_blocks.sum() == trace.prompt_blocks.sum()
    memory = findings(advice)["memory"].figures["hit_rate"]
    assert memory["2000"] <= memory["4000"] <= memory["8000"]


@pytest.mark.parametrize(("cost", "pays"), [(LINEAR, True), (UNIFORM, False)])
def test_weighing_costs_pays_where_the_two_oracles_are_apart(cost, pays):
    # Two long prompts and forty short ones in turn, with room for a few of them.
    lengths = [(i, 40 if i % 20 < 2 else 4) for i in range(400)]
    trace = trace_of([(i, path(i % 20, length)) for i, length in lengths])
    compute = findings(advise(trace, 60, STATICS, cost=cost))["compute"]
    figures = compute.figures
    gap = figures["belady_compute_savings"] - figures["belady_savings"]
    assert figures["gap"] == gap
    assert (gap > 0.011) == pays
    assert ("it would pay" in compute.text) == pays
    belady = findings(advise(trace, 60, STATICS, cost=cost))["headroom"].figures
    if not pays:
        # All blocks cost the same: savings are the block hit rate.
        assert figures["belady_savings"] == pytest.approx(belady["belady_hit_rate"])


def test_a_slice_has_the_hits_of_the_requests_that_arrived_in_it():
    trace = trace_of([(0, [1]), (9, [1, 2]), (10, [1, 2]), (25, [7])])
    slices = cut(trace, 10.0)
    assert slices.requests.tolist() == [2, 1, 1]
    assert slices.prompt_blocks.tolist() == [3, 2, 1]
    assert slices.sums(np.array([0, 1, 2, 0], np.uint32)).tolist() == [1, 2, 0]


def test_the_swing_is_what_the_best_of_each_slice_would_add():
    trace = trace_of([(0, [1, 2, 3, 4]), (10, [1, 2, 3, 4]), (20, [9, 8])])
    hits = {
        "a": np.array([3, 0, 2], np.uint32),
        "b": np.array([1, 3, 2], np.uint32),
    }
    standing = stand(cut(trace, 10.0), hits)
    assert standing.best == "b"
    assert standing.wins == {"b": 2, "a": 1}
    assert standing.swing == 2 / 10


LINES = [
    {
        "timestamp": 1000 * i,
        "input_length": 1025,
        "output_length": 1,
        "hash_ids": [i % 5, 100 + i % 7, 999],
    }
    for i in range(30)
]


def test_advice_is_printed_and_written(lab, write, tmp_path, capsys):
    out = tmp_path / "out.json"
    words = ["--capacity", 8, "--workers", 1, "--slice", 10]
    assert lab("advise", write(*LINES), *words, "--json", out) == 0
    advice = json.loads(out.read_text())
    printed = " ".join(capsys.readouterr().out.split())
    for finding in advice["findings"]:
        assert finding["text"] in printed
    assert advice["slice_s"] == 10
    assert sum(each["prompt_blocks"] for each in advice["slices"]) == 60
    assert advice["capacity"] == 8


def test_less_memory_than_the_longest_request_needs_is_said(lab, write, capsys):
    words = ["--capacity", 4, "--workers", 1, "--json", "-"]
    assert lab("advise", write(*LINES), *words) == 0
    advice = json.loads(capsys.readouterr().out)
    [memory] = [each for each in advice["findings"] if each["topic"] == "memory"]
    assert "half the memory cannot serve the longest request" in memory["text"]
    assert list(memory["figures"]["hit_rate"]) == ["4", "8"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--capacity", "8,9"], "advise takes one"),
        (["--capacity", 2], "needs 3"),
        (["--policies", "belady"], "replays the oracles anyway"),
        (["--policies", "adaptive"], "must name a policy"),
        (["--window", "soon"], "--window is soon: must be seconds"),
        (["--slice", "-1"], "--slice is -1"),
        (["--slice", "1e-9"], "cut into more than 10,000 slices"),
    ],
)
def test_a_fault_is_one_line(lab, write, capsys, words, why):
    defaults = ["--workers", 1, "--capacity", 8]
    assert lab("advise", write(*LINES), *defaults, *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("vllm bench eviction: error: ")
    assert why in error
