# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws what `gittins` has learnt: hazards, and the worth of a block, by its age."""

from collections.abc import Sequence
from pathlib import Path

AGE = "age from, seconds"
"""The row that names the columns of all others."""
_PANELS = {
    "hazard": "chance of a return at this age, given none before",
    "index": "index: returns for a second of holding, at best",
}


def draw_learnt(rows: dict[str, Sequence[float]], path: str, title: str) -> None:
    """Draw the hazards in one file and the index in another.

    Args:
        rows: Of `replay.learnt`.
        path: Of the files; `.hazard` and `.index` come before its suffix.
        title: Of both.

    """
    # Without pyplot no window system is looked for.
    from matplotlib.figure import Figure

    ages = [max(age, 0.05) for age in rows[AGE]]
    target = Path(path)
    for panel, label in _PANELS.items():
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for name, values in rows.items():
            kind, _, of_what = name.partition(", ")
            if kind == panel and of_what:
                axes.step(ages, values, where="post", label=of_what)
        axes.set_xscale("log")
        if panel == "index":
            axes.set_yscale("log")
        axes.set_xlabel("seconds since the block was released")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        figure.savefig(target.with_suffix(f".{panel}{target.suffix}"), dpi=130)
