# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction sweep`: capacities, processes, interrupts, the plot."""

import errno
import json
import multiprocessing
import os
import signal

import numpy as np
import pytest

from vllm.benchmarks.eviction import grid, jobs, sweep
from vllm.benchmarks.eviction.policy_list import LabPolicy, parse_policies
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_shared import TraceOwner, attach

SESSIONS, TURNS, BLOCK = 12, 6, 512


def line(turn, session):
    """Each turn repeats the last one's blocks and adds one."""
    return {
        "timestamp": 1000 * (SESSIONS * turn + session),
        "input_length": (turn + 2) * BLOCK + 1,
        "output_length": 1,
        "hash_ids": [1, *(100 * (session + 1) + i for i in range(turn + 1)), 9999],
    }


LINES = [line(turn, session) for turn in range(TURNS) for session in range(SESSIONS)]


def tiny_trace(keys=(1, 2, 3)):
    return Trace(
        block_size=16,
        arrivals=np.array([0.0, 1.0]),
        prompt_tokens=np.array([32, 16], np.uint32),
        output_tokens=np.array([1, 1], np.uint32),
        offsets=np.array([0, 2, 3], np.uint64),
        keys=np.array(keys, np.uint64),
        sessions=np.array([-1, -1]),
    )


def test_capacities_go_from_the_longest_request_to_all_blocks():
    trace = tiny_trace(range(1, 4))
    # 32 tokens in and one out need three blocks, and there are three.
    assert sweep.sweep_capacities(trace, 65) == [3]
    wide = tiny_trace()
    wide.keys = np.arange(1, 49, dtype=np.uint64)
    assert sweep.sweep_capacities(wide, 5) == [3, 6, 12, 24, 48]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 8, 65])
def test_every_capacity_has_its_turn_the_ends_first(number):
    order = sweep.coarse_first(number)
    assert sorted(order) == list(range(number))
    assert order[:2] == [0, number - 1][: min(number, 2)]


def test_a_beginning_of_the_order_is_spread_over_the_whole():
    assert sweep.coarse_first(9) == [0, 8, 4, 2, 6, 1, 3, 5, 7]


def test_processes_see_one_copy_of_the_trace():
    with TraceOwner(tiny_trace()) as shared:
        one, its_memory = attach(shared)
        other, others_memory = attach(shared)
        one.keys[1] = 77
        assert other.keys.tolist() == [1, 77, 3]
        assert other.prompt_tokens.tolist() == [32, 16]
        assert other.block_size == 16
        del one, other
        its_memory.close()
        others_memory.close()
    with pytest.raises(FileNotFoundError):
        attach(shared)


def test_workers_find_what_one_process_finds_in_the_same_order(lab, write, tmp_path):
    path, out = write(*LINES), tmp_path / "out.json"
    found = []
    for workers in (1, 2):
        words = ["--num-capacities", 5, "--policies", "lru,arc,belady"]
        assert lab("sweep", path, *words, "--workers", workers, "--json", out) == 0
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]
    places = [(row["capacity"], row["policy"]) for row in found[0]]
    assert len(places) == 15
    assert places == sorted(places, key=lambda place: place[0])
    assert [policy for _, policy in places[:3]] == ["lru", "arc", "belady"]


def test_the_plot_has_every_point(lab, write, tmp_path):
    plot, out = tmp_path / "sweep.svg", tmp_path / "out.csv"
    words = ["--num-capacities", 4, "--policies", "lru,infinite", "--workers", 1]
    assert lab("sweep", write(*LINES), *words, "--plot", plot, "--csv", out) == 0
    assert len(out.read_text().splitlines()) == 1 + 8
    assert plot.read_text().count("<use") >= 4


def test_an_interrupt_keeps_a_coarse_curve(lab, write, tmp_path, monkeypatch):
    real = grid.run_one
    done = []

    def interrupted(*args):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(args)
        return real(*args)

    monkeypatch.setattr(grid, "run_one", interrupted)
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    words = ["--num-capacities", 5, "--policies", "lru", "--workers", 1]
    words += ["--json", out, "--plot", plot]
    assert lab("sweep", write(*LINES), *words) == 130
    kept = [row["capacity"] for row in json.loads(out.read_text())]
    assert len(kept) == 3 and kept == sorted(kept)
    assert plot.stat().st_size > 0


def test_an_interrupt_ends_the_workers_and_removes_the_memory(monkeypatch):
    owners = []

    class Watched(TraceOwner):
        def __init__(self, trace):
            super().__init__(trace)
            owners.append(self)

    monkeypatch.setattr(jobs, "TraceOwner", Watched)
    policies = parse_policies("lru,arc")
    rows = sweep.run_grid(tiny_trace(), [3, 4], policies, workers=2)
    next(rows)
    with pytest.raises(KeyboardInterrupt):
        rows.throw(KeyboardInterrupt)
    assert not multiprocessing.active_children()
    with pytest.raises(FileNotFoundError):
        attach(owners[0].shared)


def test_too_little_shared_memory_is_one_line(lab, write, capsys, monkeypatch):
    """A page that is not there would end the process, in most containers soon."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = set(os.listdir("/dev/shm"))
    assert lab("sweep", write(*LINES), "--policies", "lru", "--workers", 2) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "shared memory: No space left on device in /dev/shm; --workers 1" in error
    assert set(os.listdir("/dev/shm")) <= before


class Fatal(LabPolicy):
    """A policy whose replay kills its process, as the kernel does for memory."""

    @property
    def oracle(self):
        # What a replay asks first of all.
        os.kill(os.getpid(), signal.SIGKILL)
        return True


def test_a_killed_worker_is_one_line():
    policies = [Fatal("lru", "lru", {})]
    rows = sweep.run_grid(tiny_trace(), [3, 4], policies, workers=2)
    with pytest.raises(ValueError, match="a worker was ended"):
        list(rows)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--num-capacities", 1], "--num-capacities is 1: must be 2 or more"),
        (["--workers", 0], "--workers is 0: must be 1 or more"),
        (["--plot", "sweep.bmp"], "must end in .png, .pdf, .svg"),
        (["--plot", "/none/sweep.png"], "its folder does not exist"),
        (["--plot", "folder.png"], "is a folder, must be a file"),
        (["--policies", "belady:x=1"], "belady has no parameters"),
        (["--policies", "beladi"], "Did you mean 'belady'"),
    ],
)
def test_a_fault_is_one_line(lab, write, capsys, tmp_path, monkeypatch, words, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    assert lab("sweep", write(*LINES), "--workers", 1, *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("vllm bench eviction: error: ")
    assert why in error
