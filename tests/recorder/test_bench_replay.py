# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A recording of a real server is replayed by `vllm bench serve` on the same server.

The recording names blocks, not tokens; the benchmark makes tokens of the names. So
the replay has the same prefixes at the same times, and must hit about as often. Two
things differ. Requests that come at nearly the same time may change places, which
matters where a prefix is evicted just before it is wanted, as in the flood here: one
to three points on a busy machine. And where a prompt repeats what the model answered,
the replay's model has answered something else, so whole blocks of the answer are
found only when an earlier prompt brought them. (Answers here are shorter than a
block.)
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.tiny_model import ENGINE_ENVIRONMENT, make_tiny_llama
from tests.recorder.recording import eventually, read
from tests.server.adaptive_traffic import agentic, drive, flood, sender
from tests.server.server_process import VLLM, Server

pytestmark = pytest.mark.timeout(900)

BLOCK_SIZE = 32
FLAGS = [
    "--dtype=float32",
    f"--block-size={BLOCK_SIZE}",
    "--max-model-len=1024",
    "--max-num-batched-tokens=1024",
    "--max-num-seqs=8",
    "--num-gpu-blocks-override=200",
    "--enforce-eager",
    "--served-model-name=tiny",
]
ENVIRONMENT = os.environ | ENGINE_ENVIRONMENT
ENVIRONMENT |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_SERVER_DEV_MODE": "1"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "trace.jsonl"


@pytest.fixture(scope="module")
def server(
    model: str, trace: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    flags = [*FLAGS, "--eviction-trace-file", str(trace)]
    log = tmp_path_factory.mktemp("logs") / "server.log"
    started = Server(model, flags, ENVIRONMENT, log)
    try:
        started.wait_until_ready(600)
        yield started
    finally:
        started.stop()


def hits_and_queries(server: Server) -> tuple[float, float]:
    """Prompt tokens, so far."""
    samples = server.samples()
    ((_, hits),) = samples["vllm:prefix_cache_hits_total"]
    ((_, queries),) = samples["vllm:prefix_cache_queries_total"]
    return hits, queries


def test_bench_replays_a_recording_with_about_the_same_hit_rate(
    server: Server, model: str, trace: Path, tmp_path: Path
) -> None:
    send = sender(server.url, "tiny")
    count = iter(range(10**6))
    sent = drive(agentic, send, lambda: next(count) >= 80, clients=2)
    sent += drive(flood, send, lambda: next(count) >= 180, clients=2)
    hits, queries = hits_and_queries(server)
    assert eventually(lambda: len(read(trace)) == sent)
    lines = read(trace)
    assert sum(line["input_length"] for line in lines) == queries
    assert {line["block_size"] for line in lines} == {BLOCK_SIZE}

    recording = tmp_path / "recording.jsonl"
    recording.write_bytes(trace.read_bytes())
    server.post("/reset_prefix_cache")
    command = [
        VLLM,
        *["bench", "serve", "--backend=vllm", f"--base-url={server.url}"],
        *[f"--model={model}", "--served-model-name=tiny"],
        *["--dataset-name=timed_trace", f"--dataset-path={recording}"],
        f"--timed-trace-chunk-hash-size={BLOCK_SIZE}",
        *[f"--num-prompts={len(lines)}", "--ready-check-timeout-sec=0"],
        *["--save-result", f"--result-dir={tmp_path}", "--result-filename=result.json"],
    ]
    # Its prompts are made with Python's hash of strings.
    environment = ENVIRONMENT | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result["failed"]) == (len(lines), 0)
    assert result["total_input_tokens"] == queries
    outputs = sum(line["output_length"] for line in lines)
    assert result["total_output_tokens"] == outputs

    hits_after, queries_after = hits_and_queries(server)
    assert queries_after - queries == queries
    original, replayed = hits / queries, (hits_after - hits) / queries
    print(f"hit rate: original {original:.4f}, replayed {replayed:.4f}")
    assert 0.1 < original < 0.9
    assert replayed == pytest.approx(original, abs=0.04)
