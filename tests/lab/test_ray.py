# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction sweep --ray`: the points of a sweep over a cluster of two."""

import json

import pytest
import ray

from tests.lab.word_traces import trace_of
from vllm.benchmarks.eviction.jobs import Job, run_jobs
from vllm.benchmarks.eviction.policy_list import LabPolicy, parse_policies

LINES = [
    {
        "timestamp": 1000 * i,
        "input_length": 1025,
        "output_length": 1,
        "hash_ids": [i % 5, 100 + i % 7, 999],
    }
    for i in range(60)
]


def test_a_cluster_finds_what_one_process_finds_in_the_same_order(lab, write, tmp_path):
    path, out = write(*LINES), tmp_path / "out.json"
    found = []
    for how in (["--workers", 1], ["--ray", "local", "--workers", 2]):
        words = ["--num-capacities", 4, "--policies", "lru,adaptive,belady-compute"]
        words += ["--cost", "linear", "--json", out]
        assert lab("sweep", path, *words, *how) == 0
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]
    assert len(found[0]) == 12
    assert not ray.is_initialized()


def test_no_cluster_is_one_line(lab, write, capsys, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert lab("sweep", write(*LINES), "--policies", "lru", "--ray") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--ray is auto: no cluster there" in error


def test_a_fault_in_a_worker_is_one_line():
    [lru] = parse_policies("lru")
    unknown = LabPolicy("mru", "mru", {})
    rows = run_jobs(trace_of(["ab"]), [Job(8, lru), Job(8, unknown)], 1, "local")
    with pytest.raises(ValueError, match="Unknown eviction policy 'mru'"):
        list(rows)
    assert not ray.is_initialized()
