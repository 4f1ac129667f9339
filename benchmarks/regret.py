# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How far is `adaptive` behind the better static policy, and how far ahead when
traffic drifts?

    python benchmarks/regret.py --preset P1 --seeds 3 --rules paper,window,discounted

Replays 20 mixes of an hour and six drift patterns of two hours with the pool model
and the service-time model, under LRU, S3-FIFO, and `adaptive` with each rule. For
each rule, in points of hit rate (prefix hits over full prompt blocks):

    mean_gap, max_gap   better static minus rule, over mixes and seeds; negative
                        beats both
    recovered_median    of mixes whose statics differ by more than one point: what the
                        rule gains over the worse, as a share of the difference
    drift_gain          rule minus better static, mean over drifts and seeds
    drift_worst         the least of them
"""

import argparse
import difflib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from command_line import check_at_least_one, fail, make_parser, run_all

from vllm.benchmarks.eviction import workloads
from vllm.benchmarks.eviction.replay import (
    Candidate,
    Result,
    replay,
    replay_adaptive,
)
from vllm.v1.core.eviction.adaptive_config import default_rule
from vllm.v1.core.eviction.rules import Discounted, Paper, Rule, Window

RULES: dict[str, Callable[[int, float], Rule]] = {
    "paper": Paper,
    "window": Window,
    "window60": partial(Window, window=60.0),
    "discounted": Discounted,
}


def rules_among(candidates: Sequence[str]) -> dict[str, Callable[[int, float], Rule]]:
    """`RULES`, with the default one as it is among these candidates."""
    return RULES | {"discounted": default_rule(candidates)}


@dataclass(frozen=True)
class Task:
    """One trace; the unit of work."""

    preset: str
    scenario: str
    is_drift: bool
    seed: int
    rules: tuple[str, ...]
    candidates: tuple[str, ...]
    engine: str


def run(task: Task) -> tuple[Task, dict[str, float], dict[str, int]]:
    """Replay one trace under everything.

    Returns:
        The task, hit rates in points by name, and the switches of each rule.

    """
    preset = workloads.PRESETS[task.preset]
    if task.is_drift:
        schedule = workloads.drift(task.scenario)
    else:
        by_name = {str(mix): mix for mix in workloads.MIXES}
        schedule = workloads.constant(by_name[task.scenario])
    trace = workloads.generate(preset.workload, schedule, task.seed)
    candidates = [
        Candidate(name, {"promotion": preset.promotion} if name == "s3fifo" else {})
        for name in task.candidates
    ]
    static: Callable[..., Result] = replay
    adaptive: Callable[..., Result] = replay_adaptive
    if task.engine == "scheduler":
        from vllm.benchmarks.eviction import harness

        static, adaptive = harness.run_static, harness.run_adaptive
    rates, switches = {}, {}
    for candidate in candidates:
        result = static(trace, preset.num_blocks, candidate)
        rates[candidate.name] = 100 * result.hit_rate
    rules = rules_among(task.candidates)
    for rule in task.rules:
        result = adaptive(trace, preset.num_blocks, candidates, rules[rule])
        rates[rule] = 100 * result.hit_rate
        switches[rule] = len(result.switches)
    return task, rates, switches


def summarise(
    outcomes: list[tuple[Task, dict[str, float], dict[str, int]]],
    rules: tuple[str, ...],
    statics: tuple[str, ...],
) -> dict[str, dict[str, float]]:
    """Put the outcomes into the figures that the module describes."""
    summary = {}
    for rule in [*statics, *rules]:
        gaps, gains, recovered, switches = [], [], [], []
        for task, rates, switched in outcomes:
            values = [rates[static] for static in statics]
            best, worst = max(values), min(values)
            switches.append(switched.get(rule, 0))
            if task.is_drift:
                gains.append(rates[rule] - best)
                continue
            gaps.append(best - rates[rule])
            if best - worst > 1:
                recovered.append((rates[rule] - worst) / (best - worst))
        summary[rule] = {
            "mean_gap": statistics.mean(gaps) if gaps else float("nan"),
            "max_gap": max(gaps, default=float("nan")),
            "recovered_median": 100 * statistics.median(recovered or [float("nan")]),
            "drift_gain": statistics.mean(gains) if gains else float("nan"),
            "drift_worst": min(gains, default=float("nan")),
            "switches": statistics.mean(switches),
        }
    return summary


def _names(text: str, allowed: list[str], what: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise argparse.ArgumentTypeError(
                f"unknown {what} {name!r}: choose from {', '.join(allowed)}.{hint}"
            )
    return names


def _one_name(text: str, allowed: list[str], what: str) -> str:
    names = _names(text, allowed, what)
    if len(names) != 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be one {what}")
    return names[0]


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    mixes = [str(mix) for mix in workloads.MIXES]
    drifts = list(workloads.DRIFTS)
    presets = list(workloads.PRESETS)
    parser.add_argument(
        "--preset",
        type=lambda text: _one_name(text, presets, "preset"),
        default="P1",
        help="P1, P0, or half (P1 on half the pool)",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--rules",
        type=lambda text: _names(text, list(RULES), "rule"),
        default=("paper", "window", "discounted"),
    )
    parser.add_argument(
        "--candidates",
        type=lambda text: _names(
            text, ["lru", "s3fifo", "arc", "sieve", "gittins"], "candidate"
        ),
        default=("lru", "s3fifo"),
        help="the first is live at the start",
    )
    parser.add_argument(
        "--mixes", type=lambda text: _names(text, mixes, "mix"), default=tuple(mixes)
    )
    parser.add_argument(
        "--drifts",
        type=lambda text: _names(text, drifts, "drift"),
        default=tuple(drifts),
    )
    parser.add_argument("--engine", choices=["pool", "scheduler"], default="pool")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--details", action="store_true", help="print each trace's hit rates too"
    )
    args: argparse.Namespace = parser.parse_args()
    check_at_least_one("--seeds", args.seeds)
    check_at_least_one("--workers", args.workers)
    if not args.mixes + args.drifts:
        fail("--mixes and --drifts: one of the two must name some traffic.")
    if len(args.candidates) < 2:
        fail(f"--candidates {','.join(args.candidates)!r}: must be two or more.")
    return args


def main() -> None:
    args = _parse()
    scenarios = [(mix, False) for mix in args.mixes]
    scenarios += [(pattern, True) for pattern in args.drifts]
    tasks = [
        Task(
            args.preset, name, is_drift, seed, args.rules, args.candidates, args.engine
        )
        for seed in range(1, args.seeds + 1)
        for name, is_drift in scenarios
    ]
    outcomes = run_all(run, tasks, args.workers)
    if args.details:
        for task, rates, switches in outcomes:
            cells = "  ".join(f"{name} {rate:6.2f}" for name, rate in rates.items())
            print(f"{task.scenario:>10} seed {task.seed}  {cells}  switches {switches}")
    summary = summarise(outcomes, args.rules, args.candidates)
    if args.json:
        print(json.dumps(summary, indent=1))
        return
    columns = list(next(iter(summary.values())))
    print(f"{args.preset}, {args.seeds} seeds, {args.engine}; points of hit rate")
    print(" " * 12 + "".join(f"{column:>18}" for column in columns))
    for name, figures in summary.items():
        cells = "".join(f"{figures[column]:18.2f}" for column in columns)
        print(f"{name:<12}{cells}")


if __name__ == "__main__":
    main()
