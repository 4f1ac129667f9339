# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The traces of these tests: three mixes at P1, four real ones, and hand-made ones."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_load import Reading, load_trace
from vllm.benchmarks.eviction.workloads import P1, Mix, constant, drift, generate

TRACES = Path(__file__).parents[3] / "shared" / "traces"

MIXES = {
    "agentic": Mix(single=0, chat=0, agent=100),
    "chat": Mix(single=0, chat=100, agent=0),
    "even": Mix(single=33.3, chat=33.3, agent=33.4),
}


@dataclass(frozen=True)
class Recorded:
    """A published trace.

    Attributes:
        file: In the folder `TRACES`.
        num_blocks: Of the pool; so small that blocks are evicted all the time.
        apart: Seconds between the starts of its sessions, instead of those recorded.
        sessions: How many to take, where their starts are drawn.

    """

    file: str
    num_blocks: int
    apart: float | None = None
    sessions: int | None = None


RECORDED = {
    "mooncake": Recorded("mooncake_conversation_trace.jsonl.zst", 4_000),
    # Recorded one session after the other, which no policy can fail at.
    "miniswe": Recorded("lmcache_miniswe_pseudo16.jsonl.zst", 5_000, apart=4.0),
    "weka": Recorded("weka_claude_code_rle.jsonl.gz", 6_000, sessions=12),
    "dynamo": Recorded("dynamo_pi_request_trace.jsonl.gz", 800),
}


@cache
def traffic(name: str, seconds: float) -> tuple[Trace, int]:
    """A trace by name, and the blocks of the pool it is meant for.

    Args:
        name: A mix, a recorded trace, or a pattern of drift.
        seconds: Of traffic.

    """
    if name in RECORDED:
        recorded = RECORDED[name]
        path = TRACES / recorded.file
        if not path.exists():
            pytest.skip(f"{recorded.file} is not in {TRACES}")
        reading = Reading(
            seconds=seconds, sessions=recorded.sessions, sessions_per_hour=120
        )
        trace = load_trace(path, reading).trace
        if recorded.apart is not None:
            trace = _start_sessions(trace, recorded.apart)
        return trace, recorded.num_blocks
    if name in MIXES:
        schedule = constant(MIXES[name], seconds)
    else:
        schedule = drift(name, seconds / len(name))
    return generate(P1.workload, schedule, seed=1), P1.num_blocks


def _start_sessions(trace: Trace, apart: float) -> Trace:
    """Let session n start n times so many seconds after the first."""
    arrivals = trace.arrivals.copy()
    for session in np.unique(trace.sessions):
        of_it = trace.sessions == session
        arrivals[of_it] += session * apart - arrivals[of_it].min()
    order = np.argsort(arrivals, kind="stable")
    keys = np.split(trace.keys, trace.offsets[1:-1].astype(np.int64))
    lengths = np.diff(trace.offsets)[order]
    return Trace(
        block_size=trace.block_size,
        arrivals=arrivals[order],
        prompt_tokens=trace.prompt_tokens[order],
        output_tokens=trace.output_tokens[order],
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64),
        keys=np.concatenate([keys[i] for i in order]),
        sessions=trace.sessions[order],
    )


def trace_of(*requests: tuple[float, list[int], int]) -> Trace:
    """A trace by hand, in blocks of four tokens.

    Args:
        requests: Of each: arrival in seconds, the numbers of the full blocks of
            prompt and answer, and how many tokens of them are the answer.

    """
    keys = [np.array(blocks, dtype=np.uint64) for _, blocks, _ in requests]
    lengths = [len(blocks) for _, blocks, _ in requests]
    outputs = np.array([output for _, _, output in requests], dtype=np.uint32)
    return Trace(
        block_size=4,
        arrivals=np.array([arrival for arrival, _, _ in requests], dtype=np.float64),
        prompt_tokens=4 * np.array(lengths, dtype=np.uint32) - outputs,
        output_tokens=outputs,
        offsets=np.cumsum([0, *lengths]).astype(np.uint64),
        keys=np.concatenate(keys),
        sessions=np.full(len(requests), -1, dtype=np.int64),
    )
