# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Figures, table and plot of `benchmark_prefix_caching.py`.

A figure of a policy is the mean of its runs, with the least and the most beside it:
what does not leave that range is noise of the machine. Where policies ran side by side
they are compared pair by pair.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, TextIO

import numpy as np
from prefix_runs import Run

Heat = Mapping[str, Run]
"""What ran at the same time, by the policy's label."""

FIGURES: dict[str, tuple[str, str, Callable[[Run], float]]] = {
    "ttft_mean": ("TTFT mean, ms", ",.0f", lambda r: 1000 * float(r.ttft.mean())),
    "ttft_p50": ("p50", ",.0f", lambda r: 1000 * float(np.percentile(r.ttft, 50))),
    "ttft_p95": ("p95", ",.0f", lambda r: 1000 * float(np.percentile(r.ttft, 95))),
    "ttft_p99": ("p99", ",.0f", lambda r: 1000 * float(np.percentile(r.ttft, 99))),
    "prefill_tokens": (
        "prefill tokens computed",
        ",.0f",
        lambda r: float((r.prompt - r.cached).sum()),
    ),
    "hit_rate": (
        "hit rate, %",
        ".1f",
        lambda r: 100 * float(r.cached.sum() / r.prompt.sum()),
    ),
    "prompt_tokens_per_second": (
        "prompt tokens/s",
        ",.0f",
        lambda r: float(r.prompt.sum() / r.seconds),
    ),
    "output_tokens_per_second": (
        "output tokens/s",
        ",.0f",
        lambda r: float(r.output.sum() / r.seconds),
    ),
    "in_flight": (
        "in flight, mean",
        ".1f",
        lambda r: float(r.latency.sum() / r.seconds),
    ),
}
"""By name: heading, how it is written, and how it is measured in a run."""


def figures_of(run: Run) -> dict[str, float]:
    """All figures of one run, and what the engine counted."""
    measured = {name: measure(run) for name, (_, _, measure) in FIGURES.items()}
    return {
        **measured,
        "requests": float(len(run.ttft)),
        "seconds": run.seconds,
        "lateness": run.lateness,
        **run.counters,
    }


def by_policy(heats: Sequence[Heat]) -> dict[str, list[Run]]:
    """All runs, in the order of the comparison."""
    runs: dict[str, list[Run]] = {}
    for heat in heats:
        for label, run in heat.items():
            runs.setdefault(label, []).append(run)
    return runs


def write_table(heats: Sequence[Heat], file: TextIO) -> None:
    """Markdown: a row a policy, and how the others compare with the first."""
    runs = by_policy(heats)
    headings = [heading for heading, _, _ in FIGURES.values()]
    file.write(f"| policy | runs | {' | '.join(headings)} |\n")
    file.write("|---" * (len(headings) + 2) + "|\n")
    for label, of_policy in runs.items():
        cells = []
        for _, form, measure in FIGURES.values():
            values = [measure(run) for run in of_policy]
            cells.append(_with_range(fmean(values), values, form))
        file.write(f"| {label} | {len(of_policy)} | {' | '.join(cells)} |\n")
    first, *others = runs
    if others:
        file.write("\n")
    for label in others:
        pairs = [heat for heat in heats if {first, label} <= heat.keys()]
        pair = "pair" if len(pairs) == 1 else "pairs"
        beside = f", {len(pairs)} {pair} side by side" if pairs else ""
        parts = [
            f"{title} {_compared(heats, label, first, FIGURES[name][2])}"
            for name, title in _COMPARED.items()
        ]
        file.write(f"{label} against {first}{beside}: {', '.join(parts)}.\n")


_COMPARED = {
    "ttft_mean": "TTFT mean",
    "ttft_p50": "TTFT p50",
    "ttft_p99": "TTFT p99",
    "prefill_tokens": "prefill tokens computed",
}


def _compared(
    heats: Sequence[Heat], label: str, first: str, measure: Callable[[Run], float]
) -> str:
    """By how much one policy has more than another, in percent.

    Of the pairs where they ran side by side, else of the means.
    """
    ratios = [
        measure(heat[label]) / measure(heat[first])
        for heat in heats
        if {first, label} <= heat.keys()
    ]
    if not ratios:
        runs = by_policy(heats)
        ratios = [fmean(map(measure, runs[label])) / fmean(map(measure, runs[first]))]
    more = [100 * (ratio - 1) for ratio in ratios]
    return _with_range(100 * (geometric_mean(ratios) - 1), more, "+.1f", " %")


def _with_range(
    middle: float, values: Sequence[float], form: str, unit: str = ""
) -> str:
    """The middle, and in brackets the least and the most, if they are two."""
    cell = format(middle, form) + unit
    least, most = format(min(values), form), format(max(values), form)
    return cell if least == most else f"{cell} ({least} to {most})"


def as_json(heats: Sequence[Heat], setting: dict[str, Any]) -> dict[str, Any]:
    """Setting and figures of every run, in full. `heat` is the same of those that ran
    at the same time."""
    runs: dict[str, list[dict[str, float]]] = {}
    for i, heat in enumerate(heats):
        for label, run in heat.items():
            runs.setdefault(label, []).append({"heat": i, **figures_of(run)})
    return {"setting": setting, "runs": runs}


def draw(heats: Sequence[Heat], path: Path, title: str) -> None:
    """Distribution of times to first token, and prefill tokens against the first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 4.2), layout="constrained"
    )
    runs = by_policy(heats)
    first = next(iter(runs))
    base = np.mean([np.cumsum(r.prompt - r.cached) for r in runs[first]], axis=0)
    for color, (label, of_policy) in enumerate(runs.items()):
        for i, run in enumerate(of_policy):
            times = np.sort(run.ttft)
            share = np.arange(1, len(times) + 1) / len(times)
            style: dict[str, Any] = {"color": f"C{color}", "linewidth": 1.2}
            left.plot(
                1000 * times, 100 * share, label=label if i == 0 else None, **style
            )
            saved = base - np.cumsum(run.prompt - run.cached)
            right.plot(saved, label=label if i == 0 else None, **style)
    left.set_xscale("log")
    left.set_xlabel("time to first token, ms")
    left.set_ylabel("percent of requests")
    right.set_xlabel("requests")
    right.set_ylabel(f"prefill tokens saved, against {first}")
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.legend()
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
