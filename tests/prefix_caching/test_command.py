# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The command: faults in one line with status 2, and a comparison on a real engine."""

import json
import os
import re
import sys
from dataclasses import replace

import benchmark_prefix_caching as command
import end_to_end
import prefix_heats
import prefix_runs
import pytest

from tests.engine.tiny_model import ENGINE_ENVIRONMENT, make_tiny_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder with a tiny model."""
    return str(make_tiny_llama(tmp_path_factory.mktemp("model")))


@pytest.fixture
def call(monkeypatch, model):
    """Run the command in this process and return its exit status."""

    def run(main, *words):
        engine = ["--model", model, "--dtype", "float32", "--block-size", "32"]
        monkeypatch.setattr(sys, "argv", ["command.py", *engine, *map(str, words)])
        try:
            return main()
        except SystemExit as end:
            return end.code

    for name, value in ENGINE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING")
    return run


needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be divided"
)
WORKLOAD = ["--workload", "P1", "--traffic", "scale-lengths=0.02"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "Give --workload, or --num-prompts"),
        (["--workload", "P1", "--num-prompts", "3"], "which of the two"),
        (["--workload", "P9"], "'P9': neither a file nor a preset.* mean 'P"),
        (["--workload", "P1"], r"tokens and asks for .* takes 4,096. Shorten them"),
        ([*WORKLOAD[:3], "shares=40,30,20"], "sum to 90"),
        ([*WORKLOAD[:3], "shares"], "'shares': must be name=value"),
        ([*WORKLOAD, "--speed-up", "0"], "--speed-up is 0"),
        ([*WORKLOAD, "--compare", "lru,belady"], "'belady': no engine has it"),
        ([*WORKLOAD, "--workload-seconds", "nan"], "--workload-seconds is nan"),
        ([*WORKLOAD, "--workload-seconds", "0.001"], "no request in so little traffic"),
        (["--num-prompts", "3", "--workload-seconds", "9"], "needs --workload"),
        (
            ["--num-prompts", "3", "--traffic", "seconds=9"],
            "--traffic needs --workload",
        ),
        ([*WORKLOAD, "--compare", "adaptive:half_life=0"], "half_life is 0: must be"),
        ([*WORKLOAD, "--runs", "many"], "--runs: invalid int value: 'many'"),
        ([*WORKLOAD, "--json", "."], "--json is .: is a folder"),
        ([*WORKLOAD, "--compare", "lru,s3fif"], "Did you mean 's3fifo'"),
        ([*WORKLOAD, "--plot", "x.bmp"], "must end in .png"),
        ([*WORKLOAD, "--json", "/nowhere/x.json"], "its folder does not exist"),
        ([*WORKLOAD, "--num-gpu-blocks-override", "4"], "holds 96 tokens, and a req"),
        ([*WORKLOAD, "--side-by-side"], "--side-by-side: needs two policies"),
        (["--num-prompts", "0"], "--num-prompts 0: must be at least 1"),
        (["--num-prompts", "3", "--input-length-range", "9"], "must be MIN:MAX"),
        (["--num-prompts", "3", "--input-length-range", "90:9"], "the least first"),
        (["--num-prompts", "3", "--prefix-len", "200"], "less than the shortest"),
        (["--num-prompts", "3", "--speed-up", "2"], "--speed-up needs --workload"),
        (["--num-prompts", "3", "--dataset-path", "no"], "No such file"),
        (["--num-prompts", "3", "--runs", "0"], "--runs 0: must be at least 1"),
        (["--num-prompts", "3", "--model", "/no/model"], "--model /no/model: "),
    ],
)
def test_a_fault_is_one_line(call, capfd, words, why):
    assert call(command.main, *words) == 2
    errors = capfd.readouterr().err.splitlines()
    (line,) = [line for line in errors if line.startswith("command.py: error: ")]
    assert re.search(why, line), line
    assert not any(line.startswith("Traceback") for line in errors)


def test_policies_are_compared_on_an_engine(call, capfd, tmp_path):
    path = tmp_path / "out.json"
    words = [*WORKLOAD, "--json", path]
    words += ["--workload-seconds", "40", "--speed-up", "20", "--output-len", "2"]
    words += ["--compare", "lru,adaptive", "--num-gpu-blocks-override", "24"]
    words += ["--enforce-eager", "--max-num-seqs", "8", "--max-model-len", "512"]
    assert call(command.main, *words) == 0
    printed = capfd.readouterr().out
    assert "adaptive: half_life 3 s, interval 0.5 s, first_window 3 s." in printed
    assert re.search(r"^\| lru \| 1 \|", printed, re.MULTILINE)
    found = json.loads(path.read_text())
    (lru,), (adaptive,) = found["runs"]["lru"], found["runs"]["adaptive"]
    assert lru["requests"] == adaptive["requests"] > 20
    assert lru["output_tokens_per_second"] > 0
    for run in (lru, adaptive):
        assert 0 < run["hit_rate"] < 100
        assert 0 < run["ttft_p50"] <= run["ttft_p99"]
        assert 1.5 < run["seconds"] < 60
    assert adaptive["evictions"] > 24


SHORT = [*WORKLOAD, "--workload-seconds", "20", "--speed-up", "20"]
SHORT += ["--output-len", "1", "--num-gpu-blocks-override", "24"]
SHORT += ["--enforce-eager", "--max-model-len", "512"]


def not_starting(engine):
    """It has no room for what it is told to compute in a step."""
    return replace(engine, max_num_seqs=64, max_num_batched_tokens=1)


def test_runs_are_kept_when_an_engine_fails(call, capfd, tmp_path):
    """The second."""
    path = tmp_path / "out.json"
    words = [*SHORT, "--json", path, "--runs", "2"]
    served = prefix_heats.run_apart
    calls = []

    def second_fails(engine, asks, title):
        calls.append(title)
        if len(calls) == 2:
            engine = not_starting(engine)
        return served(engine, asks, title)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_heats, "run_apart", second_fails)
        assert call(command.main, *words) == 2
    out, errors = capfd.readouterr()
    assert re.search(r"^\| lru \| 1 \|", out, re.MULTILINE)
    assert len(json.loads(path.read_text())["runs"]["lru"]) == 1
    assert re.search(r"^command.py: error: run 2 of 2, lru: .", errors, re.MULTILINE)


def test_in_turn_who_is_first_changes():
    heats = [heat for _, heat in prefix_heats.heats_of(["a", "b", "c"], 2, False)]
    assert heats == [("a",), ("b",), ("c",), ("b",), ("c",), ("a",)]


def test_side_by_side_pairs_change_their_cpus():
    heats = list(prefix_heats.heats_of(["a", "b", "c"], 2, True))
    assert [title for title, _ in heats] == ["run 1 of 2"] * 2 + ["run 2 of 2"] * 2
    assert [heat for _, heat in heats] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("c", "a"),
    ]


@needs_two_cpus
def test_two_policies_run_side_by_side(call, capfd, tmp_path):
    """At the same time, each on CPUs of its own."""
    path = tmp_path / "out.json"
    shares = []

    def of_cpus(engines, asks, titles, cpus):
        shares.extend(cpus)
        return served(engines, asks, titles, cpus)

    served = prefix_runs._run_in_processes
    words = ["--compare", "lru,s3fifo", "--side-by-side", "--json", path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_runs, "_run_in_processes", of_cpus)
        assert call(command.main, *SHORT, *words) == 0
    first, second = map(set, shares)
    assert first and second and not first & second
    assert "s3fifo against lru, 1 pair side by side: TTFT" in capfd.readouterr().out
    runs = json.loads(path.read_text())["runs"]
    (lru,), (s3fifo,) = runs["lru"], runs["s3fifo"]
    assert lru["heat"] == s3fifo["heat"] == 0
    assert lru["requests"] == s3fifo["requests"] > 10


@needs_two_cpus
def test_an_engine_that_does_not_start_keeps_nobody_waiting(call, capfd):
    def second_fails(engines, asks, titles):
        return served([engines[0], not_starting(engines[1])], asks, titles)

    served = prefix_heats.run_side_by_side
    words = ["--compare", "lru,s3fifo", "--side-by-side"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_heats, "run_side_by_side", second_fails)
        assert call(command.main, *SHORT, *words) == 2
    errors = capfd.readouterr().err
    (line,) = re.findall("^command.py: error: .*", errors, re.MULTILINE)
    assert line.startswith("command.py: error: run 1 of 1, lru beside s3fifo: ")
    assert "max_num_batched_tokens" in line


def test_end_to_end_plans_before_it_measures(call, capfd):
    words = ["--plan", "--cost", "0.01,0.0005", "--scale-lengths", "0.05"]
    assert call(end_to_end.main, *words, "--seconds", "20") == 0
    printed = capfd.readouterr().out
    hits = re.findall(r"hits of lru ([\d.]+) %, s3fifo ([\d.]+) %", printed)
    busy = re.findall(r"busy for lru (\d+) %, s3fifo (\d+) %", printed)
    found = [one + other for one, other in zip(hits, busy, strict=True)]
    agents, singles, _ = [[float(figure) for figure in each] for each in found]
    assert agents[0] > agents[1] and singles[0] < singles[1]
    for each in (agents, singles):
        assert max(each[2:]) == pytest.approx(80, abs=10)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--scenarios", "agent"], "--scenarios has 'agent': must be of agents, "),
        (["--cost", "1"], "--cost is '1': must be seconds a request and"),
        (["--load", "0"], "--load is 0: must be more than 0"),
        (["--cost", "0.1,nan"], "--cost is '0.1,nan': must be seconds a request and"),
        (["--at-once", "0"], "--at-once 0: must be at least 1"),
        (["--compare", "lru,belady"], "'belady': no engine has it"),
        (["--out", "/proc/none"], "--out /proc/none: no folder to write to"),
        (["--traffic-seed", "-1"], "--traffic-seed is -1"),
        (["--plan", "--cost", "0.01,0.0005", "--thin", "1e9"], "leaves no request"),
        (["--seconds", "many"], "--seconds: invalid float value: 'many'"),
        (
            ["--plan", "--cost", "0.01,0.0005", "--scale-lengths", "1"],
            "Shorten them",
        ),
    ],
)
def test_a_fault_of_end_to_end_is_one_line(call, capfd, words, why):
    assert call(end_to_end.main, *words) == 2
    (line,) = [
        line for line in capfd.readouterr().err.splitlines() if "error: " in line
    ]
    assert re.search(why, line), line


def test_processes_of_the_engine_are_gone():
    """The tests above started some; none may be left that is a child of this one."""
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    with open(children) as file:
        for child in file.read().split():
            with open(f"/proc/{child}/cmdline") as line:
                assert "spawn_main" not in line.read()
