# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How fast is a replay, against libCacheSim and against vLLM's own scheduler?

    python benchmarks/benchmark_simulator.py conversation_trace.jsonl.zst

The same trace of block ids, split into blocks of 16 tokens. Ours admits, holds, evicts
and releases whole requests by a service-time model, with output blocks; libCacheSim's
native loop takes the same prompt blocks one by one and holds none. They take turns,
each ratio is the median over the rounds. vLLM's scheduler and KV-cache manager replay
the first minutes under `lru` with a null model, without hashing tokens; its rate is
compared with ours on the same minutes.
"""

import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from command_line import (
    check_at_least_one,
    check_seconds,
    fail,
    make_parser,
    numbers,
)
from tqdm import tqdm

from vllm.benchmarks.eviction.replay import Candidate, replay
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_load import Reading, load_trace

POLICIES = {"lru": "LRU", "s3fifo": "S3FIFO", "arc": "ARC", "sieve": "Sieve"}
"""Ours, and the name of libCacheSim's class."""
SCHEDULER = "vLLM's scheduler"


@dataclass
class Rate:
    """Millions of prompt blocks a second, medians.

    Attributes:
        policy: Name.
        capacity: Blocks.
        ours: Of the pool model.
        other: What it is compared with.
        theirs: Of that.
        ratio: Median over the rounds.

    """

    policy: str
    capacity: int
    ours: float
    other: str
    theirs: float
    ratio: float


def timed(call: Callable[..., Any], *args: Any) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def write_accesses(trace: Trace, path: Path) -> int:
    """Write every prompt block as libCacheSim's binary format has it."""
    keys = [
        trace.keys[int(start) : int(start) + int(blocks)]
        for start, blocks in zip(trace.offsets[:-1], trace.prompt_blocks, strict=True)
    ]
    ids = np.concatenate(keys)
    fields = [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]
    records = np.zeros(len(ids), dtype=fields)
    records["time"] = np.arange(len(ids)) // 1000 + 1
    records["id"] = ids >> np.uint64(1)
    records["size"] = 1
    records["next"] = -1
    records.tofile(path)
    return len(ids)


def against_libcachesim(
    trace: Trace, capacities: list[int], rounds: int, progress: tqdm
) -> list[Rate]:
    import libcachesim

    rates = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accesses"
        accesses = write_accesses(trace, path)
        kind = libcachesim.TraceType.ORACLE_GENERAL_TRACE
        for capacity in capacities:
            for policy, name in POLICIES.items():
                ours, theirs = [], []
                for _ in range(rounds):
                    candidate = Candidate(policy, {})
                    ours.append(timed(replay, trace, capacity, candidate))
                    cache = getattr(libcachesim, name)(capacity)
                    reader = libcachesim.TraceReader(str(path), kind)
                    theirs.append(timed(cache.process_trace, reader))
                    progress.update()
                rates.append(
                    Rate(
                        policy,
                        capacity,
                        accesses / statistics.median(ours) / 1e6,
                        "libCacheSim",
                        accesses / statistics.median(theirs) / 1e6,
                        statistics.median(
                            b / a for a, b in zip(ours, theirs, strict=True)
                        ),
                    )
                )
    return rates


def against_scheduler(trace: Trace, capacity: int) -> Rate:
    from vllm.benchmarks.eviction.virtual_engine import VirtualEngine

    engine = VirtualEngine(trace, capacity, {"eviction_policy": "lru"})
    theirs = timed(engine.run)
    ours = statistics.median(
        timed(replay, trace, capacity, Candidate("lru", {})) for _ in range(5)
    )
    accesses = int(trace.prompt_blocks.sum())
    rates = accesses / ours / 1e6, accesses / theirs / 1e6
    return Rate("lru", capacity, rates[0], SCHEDULER, rates[1], theirs / ours)


def main() -> None:
    parser = make_parser(__doc__)
    add: Callable[..., Any] = parser.add_argument
    add("trace", type=Path)
    add("--block-size", type=int, default=16, help="tokens (%(default)s)")
    add("--capacities", default="58464,292448,1169856", help="blocks (%(default)s)")
    add("--rounds", type=int, default=3, help="turns of each (%(default)s)")
    add("--seconds", type=float, default=600.0, help="for vLLM's scheduler")
    add("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    check_at_least_one("--rounds", args.rounds)
    check_seconds("--seconds", args.seconds)
    if importlib.util.find_spec("libcachesim") is None:
        fail("needs libcachesim: pip install -r requirements/bench.txt.")
    capacities = numbers("--capacities", args.capacities)
    try:
        trace = load_trace(args.trace, Reading(args.block_size)).trace
        few = Reading(args.block_size, seconds=args.seconds)
        first = load_trace(args.trace, few).trace
    except (OSError, ValueError) as error:
        fail(str(error))
    total = len(capacities) * len(POLICIES) * args.rounds
    with tqdm(total=total, disable=None) as progress:
        rates = against_libcachesim(trace, capacities, args.rounds, progress)
    rates.append(against_scheduler(first, capacities[len(capacities) // 2]))
    if args.json:
        print(json.dumps([asdict(rate) for rate in rates], indent=1))
        return
    print("| policy | capacity, blocks | ours, M blocks/s | other | theirs | ratio |")
    print("|---" * 6 + "|")
    for rate in rates:
        digits = 3 if rate.theirs < 0.1 else 2
        print(
            f"| {rate.policy} | {rate.capacity:,} | {rate.ours:.1f} | {rate.other} "
            f"| {rate.theirs:.{digits}f} | {rate.ratio:.1f} |"
        )


if __name__ == "__main__":
    main()
