# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The table of the WAKMan paper, and what became of it: 20 mixes and two ablations.

    python benchmarks/wakman_table.py --seeds 3 --out results/

Hit rates in percent, means over the seeds, of

    lru, s3fifo          the statics, S3-FIFO with the preset's promotion
    s3fifo-1             S3-FIFO with promotion at the first return, our default
    paper                WAKMan: whole windows of 900 s, a cold replay of each
    window               ours with `--eviction-window 900`, LRU and S3-FIFO
    discounted           our default rule, LRU and S3-FIFO
    with arc             the same with ARC as a third candidate
    adaptive             the product's default: gittins, LRU, S3-FIFO, ARC
    infinite             a cache that never evicts: what there is to win

The mixes are shares of single-turn / multi-turn / agentic requests, one hour each. The
ablations change the even mix: how many turns a chat has, how long a single-turn input
is. Writes table.md, table.csv and two figures to `--out`.
"""

import argparse
import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from command_line import (
    add_workload_args,
    check_workload_args,
    make_folder,
    make_parser,
    run_all,
)

from vllm.benchmarks.eviction import workloads
from vllm.benchmarks.eviction.replay import Candidate, Result, replay, replay_adaptive
from vllm.v1.core.eviction.adaptive_config import AdaptiveConfig, default_rule
from vllm.v1.core.eviction.rules import Discounted, Paper, Window

EVEN = workloads.EVEN
TURNS = (2, 3, 4, 6, 8)
INPUTS = (128, 512, 2048, 8192)
STATICS = ("lru", "s3fifo")
COLUMNS = (
    *STATICS,
    "s3fifo-1",
    "paper",
    "window",
    "discounted",
    "with arc",
    "adaptive",
    "infinite",
)
TITLES = {
    "mix": "Mixes (single-turn / multi-turn / agentic)",
    "turns": "Turns of a chat, even mix",
    "input": "Single-turn input, tokens, even mix",
}
SUBSET = ("100/0/0", "0/100/0", "0/0/100", "33/33/33", "80/10/10", "10/10/80")


@dataclass(frozen=True)
class Row:
    """One trace.

    Attributes:
        kind: `mix`, `turns` or `input`.
        label: Within its kind.
        seed: Of the trace.
        preset: By name.
        engine: `pool` or `scheduler`.

    """

    kind: str
    label: str
    seed: int
    preset: str
    engine: str


def workload_of(row: Row) -> tuple[workloads.Workload, workloads.Mix]:
    """Parameters and mix of a row."""
    workload = workloads.PRESETS[row.preset].workload
    if row.kind == "turns":
        return replace(workload, chat_turns=float(row.label)), EVEN
    if row.kind == "input":
        return replace(workload, single_input=float(row.label)), EVEN
    (mix,) = (mix for mix in workloads.MIXES if str(mix) == row.label)
    return workload, mix


def run(row: Row) -> tuple[Row, dict[str, float]]:
    """Replay one trace under everything; hit rates in percent."""
    workload, mix = workload_of(row)
    preset = workloads.PRESETS[row.preset]
    trace = workloads.generate(workload, workloads.constant(mix), row.seed)
    static: Callable[..., Result] = replay
    adaptive: Callable[..., Result] = replay_adaptive
    if row.engine == "scheduler":
        from vllm.benchmarks.eviction import harness

        static, adaptive = harness.run_static, harness.run_adaptive
    lru = Candidate("lru", {})
    s3fifo = Candidate("s3fifo", {"promotion": preset.promotion})
    first = Candidate("s3fifo", {"promotion": 1})
    names = AdaptiveConfig().candidates
    defaults = [Candidate(name, {}) for name in names]
    pool = preset.num_blocks
    rules = {
        "paper": (Paper, [lru, s3fifo]),
        "window": (Window, [lru, s3fifo]),
        "discounted": (Discounted, [lru, s3fifo]),
        "with arc": (Discounted, [lru, s3fifo, Candidate("arc", {})]),
        "adaptive": (default_rule(names), defaults),
    }
    results = {
        "lru": static(trace, pool, lru),
        "s3fifo": static(trace, pool, s3fifo),
        "s3fifo-1": static(trace, pool, first),
    }
    results |= {
        name: adaptive(trace, pool, candidates, rule)
        for name, (rule, candidates) in rules.items()
    }
    rates = {name: 100 * result.hit_rate for name, result in results.items()}
    return row, rates | {"infinite": 100 * trace.infinite_hit_rate()}


Table = dict[str, dict[str, dict[str, float]]]
"""Hit rates by kind, label and column; means over the seeds."""


def tabulate(outcomes: list[tuple[Row, dict[str, float]]]) -> Table:
    """Means over the seeds, in the order of the rows."""
    samples: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for row, rates in outcomes:
        samples[row.kind, row.label].append(rates)
    table: Table = {}
    for (kind, label), of_seeds in samples.items():
        table.setdefault(kind, {})[label] = {
            name: statistics.mean(rates[name] for rates in of_seeds) for name in COLUMNS
        }
    return table


def summarise(table: Table) -> dict[str, float]:
    """The figures that the paper states, from the mixes; gaps and leads in points."""
    mixes = table["mix"]
    best = {
        label: max(rates[name] for name in STATICS) for label, rates in mixes.items()
    }
    summary: dict[str, float] = {
        "lru_wins": sum(rates["lru"] >= rates["s3fifo"] for rates in mixes.values()),
        "s3fifo_wins": sum(rates["lru"] < rates["s3fifo"] for rates in mixes.values()),
    }
    for label, name in (("0/0/100", "lru_lead_agentic"), ("0/100/0", "lru_lead_chat")):
        if label in mixes:
            summary[name] = mixes[label]["lru"] - mixes[label]["s3fifo"]
    for name in COLUMNS[:-1]:
        gaps = [best[label] - rates[name] for label, rates in mixes.items()]
        summary[f"{name}_mean_gap"] = statistics.mean(gaps)
        summary[f"{name}_max_gap"] = max(gaps)
    return summary


def write_markdown(table: Table, file: TextIO) -> None:
    """A table for each kind; the better static is bold."""
    for kind, rows in table.items():
        file.write(f"**{TITLES[kind]}**\n\n| | {' | '.join(COLUMNS)} |\n")
        file.write("|---|" + "---|" * len(COLUMNS) + "\n")
        for label, rates in rows.items():
            best = max(rates[name] for name in STATICS)
            cells = [
                f"**{rates[name]:.1f}**"
                if name in STATICS and rates[name] == best
                else f"{rates[name]:.1f}"
                for name in COLUMNS
            ]
            file.write(f"| {label} | {' | '.join(cells)} |\n")
        file.write("\n")


def draw(table: Table, folder: Path) -> list[Path]:
    """The mixes as distances to the better static, the ablations as curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = table["mix"]
    figure, axes = pyplot.subplots(figsize=(10, 5), layout="constrained")
    for name, marker in (
        ("lru", "v"),
        ("s3fifo", "^"),
        ("paper", "s"),
        ("adaptive", "o"),
    ):
        leads = [
            rates[name] - max(rates[static] for static in STATICS)
            for rates in rows.values()
        ]
        axes.plot(range(len(rows)), leads, marker, label=name)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(rows)), list(rows), rotation=60, fontsize=8)
    axes.set_ylabel("points over the better of LRU and S3-FIFO")
    axes.set_xlabel("single-turn / multi-turn / agentic, percent of requests")
    axes.legend()
    axes.grid(alpha=0.3)
    paths = [folder / "mixes.png"]
    figure.savefig(paths[0], dpi=110)

    ablations = [kind for kind in ("turns", "input") if kind in table]
    if ablations:
        figure, panels = pyplot.subplots(
            1, len(ablations), figsize=(10, 4), layout="constrained", squeeze=False
        )
        for panel, kind in zip(panels[0], ablations, strict=True):
            labels = [float(label) for label in table[kind]]
            for name in ("lru", "s3fifo", "paper", "adaptive", "infinite"):
                values = [rates[name] for rates in table[kind].values()]
                style = ":" if name == "infinite" else "-"
                panel.plot(labels, values, style, marker=".", label=name)
            panel.set_title(TITLES[kind], fontsize=10)
            panel.set_xscale("log", base=2)
            panel.set_xticks(labels, [f"{label:g}" for label in labels])
            panel.set_ylabel("hit rate, percent")
            panel.grid(alpha=0.3)
        panels[0][0].legend()
        paths.append(folder / "ablations.png")
        figure.savefig(paths[1], dpi=110)
    return paths


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_workload_args(parser)
    add: Callable[..., Any] = parser.add_argument
    add("--engine", choices=["pool", "scheduler"], default="pool")
    add("--subset", action="store_true", help="six mixes, no ablations")
    add("--out", type=Path, help="folder for table.md, table.csv and the figures")
    add("--json", action="store_true", help="print table and summary as JSON")
    args = parser.parse_args()
    check_workload_args(args)
    make_folder("--out", args.out)
    return args


def main() -> None:
    args = parse()
    cases = [("mix", str(mix)) for mix in workloads.MIXES]
    cases += [("turns", str(turns)) for turns in TURNS]
    cases += [("input", str(tokens)) for tokens in INPUTS]
    if args.subset:
        cases = [("mix", label) for label in SUBSET]
    rows = [
        Row(kind, label, seed, args.preset, args.engine)
        for kind, label in cases
        for seed in range(1, args.seeds + 1)
    ]
    table = tabulate(run_all(run, rows, args.workers))
    summary = summarise(table)
    if args.out is not None:
        with (args.out / "table.md").open("w") as file:
            write_markdown(table, file)
        with (args.out / "table.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kind", "label", *COLUMNS])
            for kind, of_kind in table.items():
                for label, rates in of_kind.items():
                    cells = [f"{rates[name]:.3f}" for name in COLUMNS]
                    writer.writerow([kind, label, *cells])
        draw(table, args.out)
    if args.json:
        print(json.dumps({"table": table, "summary": summary}, indent=1))
        return
    write_markdown(table, sys.stdout)
    for name, value in summary.items():
        print(f"{name:24}{value:8.2f}")


if __name__ == "__main__":
    main()
