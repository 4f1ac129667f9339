# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction`: results to files, faults in one line with status 2."""

import csv
import json
import re
import subprocess
import sys

import pyarrow.parquet
import pytest

from vllm.benchmarks.eviction import grid


def request(at, tokens, ids):
    return {
        "timestamp": at,
        "input_length": tokens,
        "output_length": 1,
        "hash_ids": ids,
    }


GOOD = [request(0, 1024, [1, 2]), request(9000, 1024, [1, 3])]


def test_replay_gives_a_row_for_each_capacity_and_policy(lab, write, tmp_path):
    out = tmp_path / "out.json"
    words = ["--block-size", "16", "--capacity", "100,200", "--policies", "lru,arc"]
    assert lab("replay", write(*GOOD), *words, "--json", out) == 0
    rows = json.loads(out.read_text())
    assert [(row["capacity"], row["policy"]) for row in rows] == [
        (100, "lru"),
        (100, "arc"),
        (200, "lru"),
        (200, "arc"),
    ]
    assert [row["block_hit_rate"] for row in rows] == [0.25] * 4
    assert rows[0]["prompt_blocks"] == 128


def test_an_interrupt_keeps_the_rows_so_far(lab, write, tmp_path, monkeypatch):
    real = grid.run_one

    def interrupted(trace, capacity, policy, *others):
        if policy.name == "arc":
            raise KeyboardInterrupt
        return real(trace, capacity, policy, *others)

    monkeypatch.setattr(grid, "run_one", interrupted)
    out = tmp_path / "out.csv"
    words = ["--capacity", "8", "--policies", "lru,arc", "--csv", out]
    assert lab("replay", write(*GOOD), *words) == 130
    with out.open() as file:
        assert [row["policy"] for row in csv.DictReader(file)] == ["lru"]


def test_a_converted_trace_replays_alike(lab, write, tmp_path):
    rates = []
    converted = tmp_path / "new.jsonl.zst"
    assert lab("convert", write(*GOOD), "--block-size", "16", converted) == 0
    for path in (write(*GOOD), converted):
        out = tmp_path / "out.json"
        words = ["--capacity", "130", "--policies", "sieve", "--json", out]
        assert lab("replay", path, "--block-size", "16", *words) == 0
        rates.append(json.loads(out.read_text()))
    assert rates[0] == rates[1]


def test_a_slow_engine_lets_requests_wait(lab, write, capsys):
    path = write(request(0, 1024, [1, 2]), request(0, 1024, [3, 4]))
    waits = []
    for rate in ("1000000", "100"):
        words = ["--capacity", "3", "--policies", "lru", "--json", "-"]
        assert lab("replay", path, "--prefill-rate", rate, *words) == 0
        waits.append(json.loads(capsys.readouterr().out)[0]["mean_wait_s"])
    # The pool holds one of the two at a time: the other waits for its end.
    assert waits == pytest.approx(
        [(0.2 + 0.02 + 0.001) / 2, (0.2 + 0.02 + 10.24) / 2], abs=1e-3
    )


def test_describe_names_the_share_of_an_infinite_cache(lab, write, capsys):
    assert lab("describe", write(*GOOD), "--json", "-") == 0
    values = {row["measure"]: row for row in json.loads(capsys.readouterr().out)}
    assert values["infinite cache"]["value"] == 0.25
    assert values["used once"]["value"] == 2 / 3
    assert values["reuse interval p50"]["value"] == 9.0


@pytest.mark.parametrize(
    ("lines", "words", "why"),
    [
        (GOOD, ["--capacity", "2"], "request 0 .* needs 3"),
        (GOOD, ["--capacity", "many"], "--capacity has 'many'"),
        (GOOD, ["--policies", "s3fif"], "Did you mean 's3fifo'"),
        (GOOD, ["--policies", "s3fifo:promotion=9"], "promotion is 9"),
        (GOOD, ["--block-size", "24"], "must divide the 512"),
        (GOOD, ["--prefill-rate", "0"], "--prefill-rate is 0: must be more than 0"),
        (GOOD, ["--base-seconds", "-1"], "--base-seconds is -1: must be 0 or more"),
        (GOOD, ["--max-running", "0"], "--max-running is 0: must be 1 or more"),
        (GOOD, ["--max-running", "99999999999999999999"], "at most 1e"),
        (GOOD, ["--prefill-budget", "99999999999"], "at most 1e"),
        (GOOD, ["--base-seconds", "inf"], "--base-seconds is inf: must be at most 1e"),
        (GOOD, ["--decode-seconds", "inf"], "--decode-seconds is inf: .* at most 1e"),
        (GOOD, ["--prefill-rate", "nan"], "--prefill-rate is nan: must be more than 0"),
        (GOOD, ["--capacity", "4294967295"], "at most 4,294,967,294"),
        (GOOD, ["--memory", "inf"], "--memory is inf: must be a number of GiB"),
        (GOOD, ["--seed", "-1"], "--seed is -1: must be 0 or more"),
        (GOOD, ["--json", "."], "--json is .: is a folder, must be a file"),
        (GOOD, ["--format", "moon"], "choose from recording, "),
        (GOOD[::-1], [], "line 2: time goes backwards"),
        ([*GOOD, {"timestamp": 9999}], [], "line 3: no 'input_length'"),
        ([{"a": 1}], [], "tried recording .*; mooncake .*; dynamo"),
        (["no json"], [], "not a known format.*tried recording"),
        ([], [], "holds no request"),
    ],
)
def test_a_fault_is_one_line(lab, write, capsys, lines, words, why):
    defaults = ["--capacity", "9", "--policies", "lru"]
    assert lab("replay", write(*lines), *defaults, *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("vllm bench eviction: error: ")
    assert re.search(why, error), error


@pytest.mark.parametrize("command", ["replay", "sweep", "describe", "convert"])
def test_a_word_that_is_no_argument_is_one_line(lab, write, capsys, command):
    needed = {"replay": ["--capacity", "9"], "convert": ["-"]}.get(command, [])
    for words, why in (
        ([*needed, "--seconds", "many"], "--seconds: invalid float value: 'many'"),
        ([*needed, "--secs", "3", "5"], "unrecognized arguments: --secs 3 5"),
    ):
        with pytest.raises(SystemExit) as status:
            lab(command, write(*GOOD), *words)
        assert status.value.code == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"vllm bench eviction {command}: error: ")
        assert why in error


def test_no_replay_for_a_file_that_cannot_be_written(lab, write, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "run_one", lambda *_: pytest.fail("replayed"))
    path = write(*GOOD)
    replay = ["--capacity", "8", "--policies", "lru"]
    closed = tmp_path / "closed"
    closed.mkdir()
    for target in (closed, tmp_path / "none" / "file"):
        for flag in ("--json", "--csv", "--parquet"):
            assert lab("replay", path, *replay, flag, target) == 2
        assert lab("convert", path, target) == 2
        assert lab("generate", target) == 2


@pytest.mark.parametrize("command", ["describe", "convert", "generate"])
def test_an_interrupt_is_one_line(lab, write, tmp_path, monkeypatch, capsys, command):
    def interrupted(*_):
        raise KeyboardInterrupt

    where = f"vllm.benchmarks.eviction.{INTERRUPTIBLE[command]}"
    monkeypatch.setattr(where, interrupted)
    words = [write(*GOOD)] if command != "generate" else []
    if command != "describe":
        words.append(tmp_path / "new.jsonl")
    assert lab(command, *words) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "Interrupted."


INTERRUPTIBLE = {
    "describe": "trace_load.block_keys",
    "convert": "trace_load.block_keys",
    "generate": "generate.lines_of_requests",
}


def test_who_has_read_enough_of_the_output_is_no_fault(tmp_path):
    script = (
        "from vllm.benchmarks.eviction.cli import run;"
        "raise SystemExit(run(['generate', '-', '--seconds', '600']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.read(1000)
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert b"rror" not in errors


def test_a_missing_file_is_one_line(lab, capsys, tmp_path):
    assert lab("describe", tmp_path / "none") == 2
    assert capsys.readouterr().err.endswith("none: there is no such file.\n")


def test_parquet_has_the_rows_of_the_json(lab, write, tmp_path):
    table, out = tmp_path / "out.parquet", tmp_path / "out.json"
    words = [
        "--capacity",
        "9,12",
        "--policies",
        "lru,s3fifo,belady",
        "--cost",
        "linear",
    ]
    words += ["--parquet", table, "--json", out]
    assert lab("replay", write(*GOOD), *words) == 0
    rows = pyarrow.parquet.read_table(table).to_pylist()
    assert rows == json.loads(out.read_text())
    assert len(rows) == 6


def test_learnt_tells_a_row_for_each_age(lab, write, tmp_path):
    out = tmp_path / "out.json"
    words = ["--capacity", "8", "--plot", tmp_path / "plot.png", "--json", out]
    assert lab("learnt", write(*GOOD), *words) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 28
    ages = [row["age from, seconds"] for row in rows]
    assert ages == sorted(ages)
    # The first block is hit nearly nine seconds after its release.
    assert [age for age, row in zip(ages, rows, strict=True) if row["hits"]] == [
        pytest.approx(0.1 * 1.5**11)
    ]
    assert {path.name for path in tmp_path.glob("plot*")} == {
        "plot.hazard.png",
        "plot.index.png",
    }


def test_one_policy_at_a_time_tells_what_it_learnt(lab, write, capsys):
    words = ["--capacity", "8", "--policy", "gittins,lru"]
    assert lab("learnt", write(*GOOD), *words) == 2
    assert "--policy is 'gittins,lru': must be one policy" in capsys.readouterr().err


def test_a_policy_that_learns_nothing_is_refused(lab, write, capsys):
    assert lab("learnt", write(*GOOD), "--capacity", "8", "--policy", "lru") == 2
    assert "'lru' learns nothing" in capsys.readouterr().err
