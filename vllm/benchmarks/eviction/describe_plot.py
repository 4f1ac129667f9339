# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws what a trace is made of: one figure, a panel for each of its measures."""

from collections.abc import Callable
from typing import Any

import numpy as np

from vllm.benchmarks.eviction.character import (
    Blocks,
    Sessions,
    WorkingSets,
    blocks_of,
    reuse_odds,
    sessions_of,
    working_sets,
)
from vllm.benchmarks.eviction.describe import USE_BANDS, band_name
from vllm.benchmarks.eviction.trace import Trace

_POINTS = 400  # of a curve; a step for each of millions of values helps nobody


def draw_description(trace: Trace, path: str, title: str) -> None:
    """Draw a trace.

    Args:
        trace: With one request or more.
        path: The file.
        title: Of the figure.

    """
    # Without pyplot no window system is looked for.
    from matplotlib.figure import Figure

    blocks = blocks_of(trace)
    sessions = sessions_of(trace)
    panels: list[tuple[str, Callable[[Any], None]]] = [
        ("prompt lengths", lambda axes: _lengths(axes, trace))
    ]
    if len(blocks.uses):
        sets = working_sets(trace, blocks)
        panels += [
            ("uses of a block", lambda axes: _uses(axes, blocks)),
            ("reused after n uses", lambda axes: _odds(axes, blocks)),
            ("time between uses and lifetime", lambda axes: _times(axes, blocks)),
            ("the same by uses, medians", lambda axes: _by_uses(axes, blocks)),
            ("overlap of working sets", lambda axes: _overlap(axes, sets)),
        ]
    if sessions is not None:
        known = sessions
        panels += [
            ("sessions", lambda axes: _session_times(axes, known)),
            ("blocks of a session", lambda axes: _footprints(axes, known)),
            ("who holds the blocks", lambda axes: _lorenz(axes, known)),
        ]
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(13, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, 3, squeeze=False).ravel()
    for axes, (name, draw) in zip(grid, panels, strict=False):
        draw(axes)
        axes.set_title(name, loc="left", fontsize="medium")
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(path, dpi=120)


def _cumulative(axes: Any, values: Any, label: str, beyond: bool = False) -> None:
    """The share of values up to, or beyond, each; zeros stand at the left edge."""
    if not len(values):
        return
    ranks = np.linspace(0, 1, min(len(values), _POINTS))
    at = np.quantile(values, ranks)
    axes.plot(at, 1 - ranks if beyond else ranks, label=label, linewidth=1.2)


def _lengths(axes: Any, trace: Trace) -> None:
    _cumulative(axes, trace.prompt_tokens, "prompt")
    _cumulative(axes, trace.output_tokens, "output")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("tokens")
    axes.set_ylabel("share of requests, up to")
    axes.legend()


def _uses(axes: Any, blocks: Blocks) -> None:
    counts = np.bincount(blocks.uses)
    seen = np.flatnonzero(counts)
    beyond = 1 - (np.cumsum(counts) - counts)[seen] / len(blocks.uses)
    axes.step(seen, beyond, where="post", linewidth=1.2)
    once = float((blocks.uses == 1).mean())
    axes.annotate(f"used once: {once:.1%}", (0.05, 0.1), xycoords="axes fraction")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("uses")
    axes.set_ylabel("share of blocks, at least")


def _odds(axes: Any, blocks: Blocks) -> None:
    odds = reuse_odds(blocks.uses, 32)
    axes.plot(np.arange(1, 33), odds, marker=".", linewidth=1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("n")
    axes.set_ylabel("share of blocks with n uses or more")


def _times(axes: Any, blocks: Blocks) -> None:
    _cumulative(axes, blocks.intervals, "between uses (share of reuses)")
    reused = blocks.lifetimes[blocks.uses > 1]
    _cumulative(axes, reused, "lifetime (share of reused blocks)")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("seconds")
    axes.set_ylabel("share, up to")
    axes.legend(fontsize="small")


def _by_uses(axes: Any, blocks: Blocks) -> None:
    names, between, lived = [], [], []
    for low, high in USE_BANDS:
        most = np.inf if high is None else high
        chosen = (blocks.uses >= low) & (blocks.uses <= most)
        if not chosen.any():
            continue
        names.append(band_name(low, high))
        lived.append(np.median(blocks.lifetimes[chosen]))
        of_these = (blocks.interval_uses >= low) & (blocks.interval_uses <= most)
        between.append(np.median(blocks.intervals[of_these]))
    axes.plot(names, between, marker="o", linewidth=1, label="between uses")
    axes.plot(names, lived, marker="o", linewidth=1, label="lifetime")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("uses of a block")
    axes.set_ylabel("seconds")
    axes.legend()


def _overlap(axes: Any, sets: WorkingSets) -> None:
    axes.plot(sets.lags * sets.window, sets.overlap, marker="o", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sets.lags * sets.window, [f"{lag}" for lag in sets.lags])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"windows of {sets.window:g} s apart")
    axes.set_ylabel("share of blocks used in either")


def _session_times(axes: Any, sessions: Sessions) -> None:
    _cumulative(axes, sessions.durations, "a session lasts (share of sessions)")
    _cumulative(axes, sessions.gaps, "gap in a session (share of gaps)")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("seconds")
    axes.set_ylabel("share, up to")
    axes.legend(fontsize="small")


def _footprints(axes: Any, sessions: Sessions) -> None:
    _cumulative(axes, sessions.footprints, "blocks", beyond=True)
    _cumulative(axes, sessions.turns, "turns", beyond=True)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("blocks of the longest prompt, or turns")
    axes.set_ylabel("share of sessions, beyond")
    axes.legend()


def _lorenz(axes: Any, sessions: Sessions) -> None:
    shares = sessions.shares()
    places = np.unique(np.linspace(0, len(shares) - 1, _POINTS).astype(np.int64))
    axes.plot((places + 1) / len(shares), shares[places], linewidth=1.2)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of sessions, the largest first")
    axes.set_ylabel("share of sessions' blocks")
