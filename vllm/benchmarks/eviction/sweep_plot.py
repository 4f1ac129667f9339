# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws a sweep: a curve for each policy, through the points that were measured."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"--plot is {path}: its folder does not exist.")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "--plot needs matplotlib: pip install -r requirements/bench.txt."
        )


def draw_sweep(rows: Sequence[dict[str, Any]], path: str, title: str) -> None:
    """Draw hit rate by capacity.

    Args:
        rows: Of the sweep, by capacity; those of one policy are joined by straight
            lines.
        path: The file.
        title: Of the plot.

    """
    # Without pyplot no window system is looked for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        axes.plot(
            [row["capacity"] for row in mine],
            [row["hit_rate"] for row in mine],
            marker="." if not mine[0]["offline"] else None,
            linestyle="--" if mine[0]["offline"] else "-",
            linewidth=1,
            markersize=4,
            label=f"{policy} (offline)" if mine[0]["offline"] else policy,
        )
    axes.set_xscale("log")
    axes.set_xlabel("capacity, blocks")
    axes.set_ylabel("hit blocks over full prompt blocks")
    axes.set_ylim(bottom=0)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
