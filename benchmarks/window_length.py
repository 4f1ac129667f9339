# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How long should a window be? The question that the WAKMan paper leaves open.

    python benchmarks/window_length.py --seeds 3 --out results/

`--eviction-window W` from 15 s to half an hour, the paper's rule at the same lengths,
and the default rule, which has no window, on traffic of three kinds:

    stationary   six mixes of an hour
    drifting     the six patterns that change every 20 minutes, two hours
    alternating  agents and single turns that change places every 5 minutes, or chats
                 and agents, an hour

Points of hit rate over the better of LRU and S3-FIFO, mean over traces and seeds; pool
model. Writes window.png to `--out`.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from command_line import (
    add_workload_args,
    check_workload_args,
    make_folder,
    make_parser,
    run_all,
)

from vllm.benchmarks.eviction import workloads
from vllm.benchmarks.eviction.replay import Candidate, replay, replay_adaptive
from vllm.v1.core.eviction.rules import Discounted, Paper, Rule, Window

WINDOWS = (15, 30, 60, 120, 300, 600, 900, 1800)  # seconds
MIXES = ("100/0/0", "0/100/0", "0/0/100", "33/33/33", "80/10/10", "10/10/80")
ALTERNATING = ("ASASASASASAS", "MAMAMAMAMAMA")
KINDS = ("stationary", "drifting", "alternating")
DEFAULT = "discounted"


@dataclass(frozen=True)
class Task:
    """One trace."""

    kind: str
    name: str
    seed: int
    preset: str


def rules() -> dict[str, Callable[[int, float], Rule]]:
    """By label."""
    made: dict[str, Callable[[int, float], Rule]] = {DEFAULT: Discounted}
    for length in WINDOWS:
        made[f"window {length}"] = partial(Window, window=float(length))
        made[f"paper {length}"] = partial(Paper, window=float(length))
    return made


def run(task: Task) -> tuple[Task, dict[str, float], dict[str, int]]:
    """Lead over the better static in points, and switches, by rule."""
    preset = workloads.PRESETS[task.preset]
    if task.kind == "stationary":
        (mix,) = (mix for mix in workloads.MIXES if str(mix) == task.name)
        schedule = workloads.constant(mix)
    else:
        seconds = 300.0 if task.kind == "alternating" else workloads.DRIFT_SECONDS
        schedule = workloads.drift(task.name, seconds)
    trace = workloads.generate(preset.workload, schedule, task.seed)
    candidates = [
        Candidate("lru", {}),
        Candidate("s3fifo", {"promotion": preset.promotion}),
    ]
    pool = preset.num_blocks
    best = max(replay(trace, pool, each).hit_rate for each in candidates)
    leads, switches = {}, {}
    for name, rule in rules().items():
        result = replay_adaptive(trace, pool, candidates, rule)
        leads[name] = 100 * (result.hit_rate - best)
        switches[name] = len(result.switches)
    return task, leads, switches


Figures = dict[str, dict[str, dict[str, float]]]
"""By kind and rule: `lead` in points and `switches` a trace."""


def summarise(
    outcomes: list[tuple[Task, dict[str, float], dict[str, int]]],
) -> Figures:
    """Means over traces and seeds."""
    return {
        kind: {
            name: {
                "lead": statistics.mean(
                    o[1][name] for o in outcomes if o[0].kind == kind
                ),
                "switches": statistics.mean(
                    o[2][name] for o in outcomes if o[0].kind == kind
                ),
            }
            for name in rules()
        }
        for kind in KINDS
    }


def draw(figures: Figures, path: Path) -> None:
    """A panel for each kind of traffic: lead over the length of the window."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for panel, (kind, by_rule) in zip(panels, figures.items(), strict=True):
        for rule, color in (("window", "tab:blue"), ("paper", "tab:green")):
            leads = [by_rule[f"{rule} {length}"]["lead"] for length in WINDOWS]
            panel.plot(WINDOWS, leads, marker=".", color=color, label=rule)
        level = by_rule[DEFAULT]["lead"]
        panel.axhline(level, color="tab:red", label="discounted, the default")
        panel.axhline(0, color="grey", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_xticks(WINDOWS, [str(length) for length in WINDOWS])
        panel.minorticks_off()
        panel.set_title(kind, fontsize=10)
        panel.set_xlabel("window, seconds")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("points over the better of LRU and S3-FIFO")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = make_parser(__doc__)
    add_workload_args(parser)
    add: Callable[..., Any] = parser.add_argument
    add("--out", type=Path, help="folder for window.png")
    add("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    check_workload_args(args)
    make_folder("--out", args.out)
    traces = [("stationary", name) for name in MIXES]
    traces += [("drifting", name) for name in workloads.DRIFTS]
    traces += [("alternating", name) for name in ALTERNATING]
    tasks = [
        Task(kind, name, seed, args.preset)
        for kind, name in traces
        for seed in range(1, args.seeds + 1)
    ]
    figures = summarise(run_all(run, tasks, args.workers))
    if args.out is not None:
        draw(figures, args.out / "window.png")
    if args.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"| rule | {' | '.join(KINDS)} | switches: {' / '.join(KINDS)} |")
    print("|---" * 5 + "|")
    for name in rules():
        leads = " | ".join(f"{figures[kind][name]['lead']:+.2f}" for kind in KINDS)
        counts = " / ".join(f"{figures[kind][name]['switches']:.1f}" for kind in KINDS)
        print(f"| {name} | {leads} | {counts} |")


if __name__ == "__main__":
    main()
