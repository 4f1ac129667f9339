# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The Mooncake trace as other simulators replay it, against figures of one of them.

One request after the other, nothing in use between them, no answers, and the partial
block at a prompt's end counts as a block. The figures are of an independent simulator
with the same rules (promotion 2 for S3-FIFO, whose queues it sizes a little otherwise).
"""

import json

import numpy as np
import pytest
from vllm._eviction_C import ServiceModel

from tests.harness.traffic import RECORDED, TRACES
from vllm.benchmarks.eviction.oracles import replay_oracle
from vllm.benchmarks.eviction.replay import Candidate, replay
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_files import read_lines

AT_ONCE = ServiceModel(base=0, prefill_rate=1e30, decode_seconds=0, max_running=1)

FIGURES = {  # capacity: hits over block accesses
    1_827: {"lru": 0.053, "s3fifo": 0.075, "sieve": 0.058, "belady": 0.246},
    9_139: {"lru": 0.196, "s3fifo": 0.186, "sieve": 0.127, "belady": 0.366},
    36_558: {"lru": 0.345, "s3fifo": 0.328, "sieve": 0.307, "belady": 0.366},
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    path = TRACES / RECORDED["mooncake"].file
    if not path.exists():
        pytest.skip(f"{path.name} is not in {TRACES}")
    lines = [json.loads(line) for _, line in read_lines(path)]
    blocks = np.array([len(line["hash_ids"]) for line in lines])
    ids = np.concatenate([line["hash_ids"] for line in lines]).astype(np.uint64)
    return Trace(
        block_size=512,
        arrivals=np.array([line["timestamp"] / 1000 for line in lines]),
        # One token more than the blocks hold: the last is always computed.
        prompt_tokens=(512 * blocks + 1).astype(np.uint32),
        output_tokens=np.zeros(len(lines), np.uint32),
        offsets=np.concatenate([[0], np.cumsum(blocks)]).astype(np.uint64),
        keys=ids + np.uint64(1),
        sessions=np.full(len(lines), -1),
    )


@pytest.mark.parametrize("capacity", FIGURES)
@pytest.mark.parametrize(
    ("name", "parameters", "within"),
    [
        ("lru", {}, 0.0006),
        ("sieve", {}, 0.0006),
        ("belady", {}, 0.0006),
        ("s3fifo", {"promotion": 2}, 0.0075),
    ],
)
def test_the_mooncake_trace_one_request_at_a_time(
    trace: Trace, capacity: int, name: str, parameters: dict, within: float
) -> None:
    if name == "belady":
        result = replay_oracle(trace, capacity, name)
    else:  # a block more, for the token that is always computed
        result = replay(trace, capacity + 1, Candidate(name, parameters), AT_ONCE)
    assert result.query_blocks == 288_500
    assert result.hit_rate == pytest.approx(FIGURES[capacity][name], abs=within)
