# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Traces whose blocks do not fit into memory: in a file, and replayed alike."""

import gc
import json
from pathlib import Path

import numpy as np
import pytest

from vllm.benchmarks.eviction import trace as trace_module
from vllm.benchmarks.eviction.trace_load import Reading, load_trace

SESSIONS = 7


def line(i, at):
    return {
        "timestamp": at,
        "input_length": 40,
        "output_length": 20,
        "hash_ids": [i % SESSIONS, 100 + i % (3 * SESSIONS), 9999 + i],
        "block_size": 16,
        "session": i % SESSIONS,
    }


IN_ORDER = [line(i, i) for i in range(50)]
SHUFFLED = [line(i, (i * 17) % 50) for i in range(50)]


@pytest.fixture(autouse=True)
def temporary_files(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize("lines", [IN_ORDER, SHUFFLED], ids=["in order", "shuffled"])
@pytest.mark.parametrize("seconds", [None, 20.0])
@pytest.mark.parametrize("memory", [0, 100])
def test_a_trace_in_a_file_is_the_one_in_memory(write, lines, seconds, memory):
    path = write(*lines)
    held = load_trace(path, Reading(seconds=seconds)).trace
    mapped = load_trace(path, Reading(seconds=seconds, memory=memory)).trace
    assert isinstance(mapped.keys, np.memmap)
    assert not isinstance(held.keys, np.memmap)
    for name in ("arrivals", "prompt_tokens", "output_tokens", "offsets", "sessions"):
        assert getattr(mapped, name).tolist() == getattr(held, name).tolist()
    # Numbered or not, the same blocks are equal.
    first_uses = [
        [keys.tolist().index(key) for key in keys.tolist()]
        for keys in (held.keys, mapped.keys)
    ]
    assert first_uses[0] == first_uses[1]
    assert mapped.last_key == 0
    assert mapped.distinct_blocks() == held.distinct_blocks()


def test_starts_are_drawn_alike(write):
    turns = [
        {"t": 3 * i, "in": 64 * i, "out": 5, "hash_runs": [[1, i]]} for i in (1, 2, 3)
    ]
    session = {"block_size": 64, "hash_id_scope": "local", "requests": turns}
    path = write(*[session] * 6)
    traces = [
        load_trace(path, Reading(sessions=4, memory=memory)).trace
        for memory in (0, 1 << 30)
    ]
    assert traces[0].arrivals.tolist() == traces[1].arrivals.tolist()
    assert len(set(traces[0].sessions.tolist())) == 4
    assert traces[0].infinite_hit_rate() == traces[1].infinite_hit_rate() > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_of_it_finds_the_same(lab, write, tmp_path, workers):
    path, out = write(*SHUFFLED), tmp_path / "out.json"
    found = []
    for memory in ("0.00000001", "4"):
        words = ["--num-capacities", 4, "--policies", "lru,s3fifo,adaptive,belady"]
        words += ["--workers", workers, "--memory", memory, "--json", out]
        assert lab("sweep", path, *words) == 0
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]


def test_the_file_goes_with_the_trace(write, temporary_files):
    trace = load_trace(write(*SHUFFLED), Reading(memory=0)).trace
    first = int(trace.keys[0])
    assert Path(trace.keys.filename).parent == temporary_files
    kept = trace.keys[:1]
    del trace
    gc.collect()
    assert kept[0] == first
    del kept
    gc.collect()
    assert not list(temporary_files.iterdir())


def test_a_fault_leaves_no_file(lab, write, temporary_files, capsys):
    path = write(*IN_ORDER, {"timestamp": 99})
    assert lab("describe", path, "--memory", "0.00000001") == 2
    gc.collect()
    assert not list(temporary_files.iterdir())


@pytest.mark.parametrize(
    ("words", "who"),
    [
        (["describe"], "describe must see"),
        (["replay", "--capacity", 9, "--policies", "lru,belady"], "An oracle must see"),
    ],
)
def test_who_needs_the_whole_trace_says_so(lab, write, capsys, monkeypatch, words, who):
    real = trace_module.os.sysconf
    monkeypatch.setattr(
        trace_module.os,
        "sysconf",
        lambda name: 0 if name == "SC_AVPHYS_PAGES" else real(name),
    )
    command, *others = words
    assert lab(command, write(*IN_ORDER), *others, "--memory", "0.00000001") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert who in error and "GiB of memory" in error
