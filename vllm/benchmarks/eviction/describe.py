# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a trace is made of, in figures; `describe_plot` draws the same.

Where sessions are known, the measures by which "When Fancy Eviction Fails" (section 4)
describes its production trace, too.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.character import (
    Blocks,
    Sessions,
    blocks_of,
    reuse_odds,
    sessions_of,
    working_sets,
)
from vllm.benchmarks.eviction.trace import Trace

USE_BANDS = ((2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, None))
"""Uses of a block, from and to; of the figures by frequency."""


def band_name(low: int, high: int | None) -> str:
    """For people."""
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


class _Rows(list[dict[str, Any]]):
    def add(self, measure: str, value: float, unit: str) -> None:
        self.append({"measure": measure, "value": value, "unit": unit})

    def percentiles(
        self, measure: str, values: "NDArray[Any]", unit: str, *qs: int
    ) -> None:
        if len(values):
            for q in qs or (50, 90, 99):
                self.add(f"{measure} p{q}", float(np.percentile(values, q)), unit)


def describe(trace: Trace) -> list[dict[str, Any]]:
    """Measure a trace.

    Args:
        trace: With one request or more.

    Returns:
        Rows of measure, value and unit; the unit names the denominator of a share.

    """
    blocks = blocks_of(trace)
    sessions = sessions_of(trace)
    rows = _Rows()
    rows.add("requests", len(trace), "requests")
    rows.add("duration", float(trace.arrivals[-1]), "seconds")
    known = np.unique(trace.sessions[trace.sessions >= 0])
    if len(known):
        rows.add("sessions", len(known), "sessions")
    rows.add("prompt blocks", len(blocks.number), "blocks")
    rows.add("distinct prompt blocks", len(blocks.uses), "blocks")
    rows.percentiles("prompt length", trace.prompt_tokens, "tokens")
    rows.percentiles("output length", trace.output_tokens, "tokens")
    rows.add("infinite cache", trace.infinite_hit_rate(), "share of prompt blocks")
    if len(blocks.uses):
        _add_uses(rows, blocks)
        sets = working_sets(trace, blocks)
        name = f"{sets.window:g} s"
        rows.add(f"working set of {name}, mean", float(sets.sizes.mean()), "blocks")
        rows.add(f"working set of {name}, largest", int(sets.sizes.max()), "blocks")
        for lag, overlap in zip(sets.lags, sets.overlap, strict=True):
            rows.add(
                f"overlap of windows {lag * sets.window:g} s apart",
                float(overlap),
                "share of blocks used in either",
            )
    if sessions is not None:
        _add_sessions(rows, trace, sessions)
        if len(blocks.uses):
            _add_kinds(rows, blocks, sessions)
    return list(rows)


def _add_uses(rows: _Rows, blocks: Blocks) -> None:
    rows.add("used once", float((blocks.uses == 1).mean()), "share of distinct blocks")
    rows.percentiles("uses of a block", blocks.uses, "uses")
    for n, again in enumerate(reuse_odds(blocks.uses, 16), 1):
        if n in (1, 2, 3, 4, 8, 16) and not np.isnan(again):
            rows.add(
                f"used again after {n}",
                float(again),
                f"share of blocks with {n} uses or more",
            )
    reused = blocks.uses > 1
    rows.percentiles("reuse interval", blocks.intervals, "seconds")
    rows.percentiles("lifetime of reused blocks", blocks.lifetimes[reused], "seconds")
    for low, high in USE_BANDS:
        name = band_name(low, high)
        most = np.inf if high is None else high
        chosen = (blocks.interval_uses >= low) & (blocks.interval_uses <= most)
        rows.percentiles(
            f"reuse interval of blocks used {name} times",
            blocks.intervals[chosen],
            "seconds",
            50,
        )
        chosen = (blocks.uses >= low) & (blocks.uses <= most)
        rows.percentiles(
            f"lifetime of blocks used {name} times",
            blocks.lifetimes[chosen],
            "seconds",
            50,
        )


def _add_sessions(rows: _Rows, trace: Trace, sessions: Sessions) -> None:
    """What sessions are like."""
    multi = sessions.turns > 1
    alone = float((~multi[sessions.of_request]).mean())
    rows.add("single-turn", alone, "share of requests")
    if multi.any():
        tokens = trace.prompt_tokens[multi[sessions.of_request]]
        rows.percentiles("prompt length of multi-turn", tokens, "tokens", 50)
        mean = float(sessions.turns[multi].mean())
        rows.add("turns of multi-turn, mean", mean, "requests")
        rows.add("turns, most", int(sessions.turns.max()), "requests")
        rows.percentiles("gap in a session", sessions.gaps, "seconds")
        short = float((sessions.gaps < 1320).mean())
        rows.add("gaps under 22 minutes", short, "share of gaps")
        rows.percentiles(
            "multi-turn session lasts", sessions.durations[multi], "seconds"
        )
    rows.percentiles("session's blocks", sessions.footprints, "blocks")
    tenth = sessions.shares()[max(1, len(multi) // 10) - 1]
    rows.add("blocks of the largest tenth", float(tenth), "share of sessions' blocks")


def _add_kinds(rows: _Rows, blocks: Blocks, sessions: Sessions) -> None:
    """Which kind of session blocks belong to."""
    owners = sessions.of_request[blocks.request]
    uses = blocks.uses
    of_multi = np.zeros(len(uses), dtype=np.bool_)
    of_multi[blocks.number[sessions.turns[owners] > 1]] = True
    low = np.full(len(uses), len(sessions.turns))
    np.minimum.at(low, blocks.number, owners)
    high = np.full(len(uses), -1)
    np.maximum.at(high, blocks.number, owners)
    for name, chosen in (
        ("of single turns only", ~of_multi),
        ("of several sessions, a multi-turn one too", of_multi & (low < high)),
        ("of one multi-turn session only", of_multi & (low == high)),
    ):
        rows.add(f"blocks {name}", float(chosen.mean()), "share of distinct blocks")
        accesses = float(uses[chosen].sum() / uses.sum())
        rows.add(f"uses {name}", accesses, "share of prompt blocks")
    if (~of_multi).any():
        once = float((uses[~of_multi] == 1).mean())
        rows.add("used once, of single turns only", once, "share of those blocks")
