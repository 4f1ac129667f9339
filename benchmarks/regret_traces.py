# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How far is `adaptive` behind its best candidate on recorded traffic?

    python benchmarks/regret_traces.py conversation_trace.jsonl.zst \\
        --pools 1827,9139,36558

Replays a trace of block ids (see vllm/benchmarks/eviction/trace_files.py) on the pool
model with its service-time model, at each size of the pool, under every candidate and
under `adaptive` with each rule. Hit rates in percent of full prompt blocks, and for
each rule the gap to the best candidate in points; negative beats them all.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from command_line import check_at_least_one, fail, make_parser, numbers, run_all
from regret import RULES, rules_among
from vllm._eviction_C import ServiceModel

from vllm.benchmarks.eviction.replay import Candidate, Result, replay, replay_adaptive
from vllm.benchmarks.eviction.trace_load import load_trace
from vllm.v1.core.eviction.adaptive_config import AdaptiveConfig, resolve_candidates


@dataclass(frozen=True)
class Task:
    """One replay."""

    path: Path
    pool: int
    candidates: tuple[str, ...]
    under: str  # a candidate or a rule
    prefill_rate: float


def run(task: Task) -> tuple[Task, Result]:
    trace = load_trace(task.path).trace
    service = ServiceModel(prefill_rate=task.prefill_rate)
    if task.under in task.candidates:
        return task, replay(trace, task.pool, Candidate(task.under, {}), service)
    candidates = [Candidate(name, {}) for name in task.candidates]
    rule = rules_among(task.candidates)[task.under]
    return task, replay_adaptive(trace, task.pool, candidates, rule, service)


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    add: Callable[..., object] = parser.add_argument
    add("trace", type=Path)
    add("--pools", required=True, help="blocks, such as 1827,9139")
    default = ",".join(AdaptiveConfig().candidates)
    add("--candidates", default=default, help="the first is live (%(default)s)")
    add("--rules", default="paper,window,discounted", help="(%(default)s)")
    add("--prefill-rate", type=float, default=8000.0, help="tokens/s (%(default)s)")
    add("--workers", type=int, default=2, help="processes")
    add("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    for rule in args.rules.split(","):
        if rule not in RULES:
            fail(f"--rules {rule!r}: must be one of {', '.join(RULES)}.")
    args.pools = numbers("--pools", args.pools)
    names = args.candidates.split(",")
    try:
        resolve_candidates(names)
    except ValueError as error:
        fail(f"--candidates: {error}")
    if not 0 < args.prefill_rate < float("inf"):
        fail(f"--prefill-rate {args.prefill_rate:g}: must be more than 0.")
    check_at_least_one("--workers", args.workers)
    return args


def main() -> None:
    args = parse()
    candidates = tuple(args.candidates.split(","))
    names = [*candidates, *args.rules.split(",")]
    tasks = [
        Task(args.trace, pool, candidates, name, args.prefill_rate)
        for pool in args.pools
        for name in names
    ]
    rates: dict[int, dict[str, float]] = {pool: {} for pool in args.pools}
    try:
        for task, result in run_all(run, tasks, args.workers):
            rates[task.pool][task.under] = 100 * result.hit_rate
    except (OSError, ValueError) as error:
        fail(str(error))
    if args.json:
        print(json.dumps(rates, indent=1))
        return
    rules = names[len(candidates) :]
    heads = [*candidates, *(f"{rule} (gap)" for rule in rules)]
    print(f"| pool, blocks | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for pool, of in rates.items():
        best = max(of[name] for name in candidates)
        cells = [f"{of[name]:.2f}" for name in candidates]
        cells += [f"{of[rule]:.2f} ({best - of[rule]:+.2f})" for rule in rules]
        print(f"| {pool:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
