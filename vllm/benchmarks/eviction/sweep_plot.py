# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws a sweep: a curve for each policy, through the points that were measured."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm.benchmarks.eviction.tables import check_file

_SUFFIXES = (".png", ".pdf", ".svg")


def check_plot(path: str | None) -> None:
    """Fail before the work, not after it, where the plot cannot be drawn.

    Raises:
        ValueError: One line.

    """
    if path is None:
        return
    if Path(path).suffix not in _SUFFIXES:
        raise ValueError(f"--plot is {path}: must end in {', '.join(_SUFFIXES)}.")
    check_file("--plot", path)
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "--plot needs matplotlib: pip install -r requirements/bench.txt."
        )


def draw_sweep(rows: Sequence[dict[str, Any]], path: str, title: str) -> None:
    """Draw hit rate by capacity, and below it compute savings where there are any.

    Args:
        rows: Of the sweep, by capacity; those of one policy are joined by straight
            lines.
        path: The file.
        title: Of the plot.

    """
    # Without pyplot no window system is looked for.
    from matplotlib.figure import Figure

    measures = {"block_hit_rate": "hit blocks over full prompt blocks"}
    if "compute_savings" in rows[0]:
        measures["compute_savings"] = "cost of the hits over that of all prompt blocks"
    figure = Figure(figsize=(8, 5 * len(measures)), layout="constrained")
    panels = figure.subplots(len(measures), squeeze=False)[:, 0]
    for axes, (measure, label) in zip(panels, measures.items(), strict=True):
        _draw(axes, rows, measure)
        axes.set_ylabel(label)
    panels[0].set_title(title, loc="left", fontsize="medium")
    figure.savefig(path, dpi=150)


def _draw(axes: Any, rows: Sequence[dict[str, Any]], measure: str) -> None:
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        axes.plot(
            [row["capacity"] for row in mine],
            [row[measure] for row in mine],
            marker="." if not mine[0]["offline"] else None,
            linestyle="--" if mine[0]["offline"] else "-",
            linewidth=1,
            markersize=4,
            label=f"{policy} (offline)" if mine[0]["offline"] else policy,
        )
    axes.set_xscale("log")
    axes.set_xlabel("capacity, blocks")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
