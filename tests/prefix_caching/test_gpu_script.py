# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`benchmarks/gpu_end_to_end.sh` as far as it goes without a GPU: what it would run."""

import os
import subprocess
import sys

import benchmark_prefix_caching
import end_to_end
import pytest

from fork import ROOT
from tests.engine.tiny_model import make_tiny_llama

SCRIPT = ROOT / "benchmarks" / "gpu_end_to_end.sh"


@pytest.fixture
def script(tmp_path):
    """Run it; returns the process, and the commands that it gave to its Python."""
    log = tmp_path / "log"
    recorder = tmp_path / "python"
    recorder.write_text(
        f"#!/bin/sh\ncase $1 in -c) exit 0;; esac\nprintf '%s\\n' \"$@\" '' >> {log}\n"
    )
    recorder.chmod(0o755)

    def run(**environment):
        environment = {"PYTHON": str(recorder), "OUT": str(tmp_path), **environment}
        done = subprocess.run(
            [SCRIPT], env=os.environ | environment, capture_output=True, text=True
        )
        text = log.read_text() if log.exists() else ""
        return done, [each.splitlines() for each in text.split("\n\n") if each.strip()]

    return run


def distinct_blocks(asks, size):
    """How many full blocks there are, each with all before it."""
    seen = set()
    for ask in asks:
        name = 0
        for start in range(0, len(ask.tokens) - size + 1, size):
            name = hash((name, ask.tokens[start : start + size].tobytes()))
            seen.add(name)
    return len(seen)


def test_without_a_gpu_it_says_so_before_anything_runs(script, tmp_path):
    done, commands = script(PYTHON=sys.executable, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu_end_to_end.sh: error: no GPU: torch of ")
    assert not commands


def test_a_part_that_there_is_not_is_one_line(script):
    done, commands = script(PARTS="p1 all")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "'all': must be of p1, production, overhead" in line
    assert not commands


def test_every_command_is_one_that_there_is(script, tmp_path, monkeypatch):
    # Longer than this model is made for, but a model of the right length takes a GPU.
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    model = str(make_tiny_llama(tmp_path / "model"))
    engine = "--load-format dummy --skip-tokenizer-init"
    done, commands = script(MODEL=model, RUNS="2", ENGINE_ARGS=engine)
    assert done.returncode == 0, done.stderr
    p1, production, overhead = commands
    monkeypatch.chdir(ROOT)

    assert p1[0] == "benchmarks/end_to_end.py"
    monkeypatch.setattr(sys, "argv", p1)
    args = end_to_end.parse()
    assert args.scenarios.split(",") == list(end_to_end.SCENARIOS)
    assert end_to_end.pool_blocks(args.scale_lengths, args.thin, args.block_size) == (
        end_to_end.P1.num_blocks
    )
    assert (args.runs, args.load_format, args.skip_tokenizer_init) == (2, "dummy", True)

    for words in (production, overhead):
        assert words[0] == "benchmarks/benchmark_prefix_caching.py"
        args = benchmark_prefix_caching.parser_of_all().parse_args(words[1:])
        setting = benchmark_prefix_caching.setting_of(args)
        assert {"lru", "s3fifo", "adaptive"} <= set(setting.engines)
        assert args.load_format == "dummy"
        # The pool must be too small, or there is nothing to choose.
        different = distinct_blocks(setting.asks, args.block_size)
        assert different > 1.5 * args.num_gpu_blocks_override
    # All that runs at once fits, so that nothing is preempted.
    longest = max(len(ask.tokens) + ask.output for ask in setting.asks)
    blocks = args.max_num_seqs * -(-longest // args.block_size)
    assert blocks < args.num_gpu_blocks_override
