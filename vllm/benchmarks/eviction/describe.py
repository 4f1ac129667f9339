# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a trace is made of, before any cache: how much of it repeats, and how soon.

Where sessions are known, the measures by which "When Fancy Eviction Fails" (section 4)
describes its production trace, too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vllm.benchmarks.eviction.trace import Trace


def describe(trace: Trace) -> list[dict[str, Any]]:
    """Measure a trace.

    Args:
        trace: With one request or more.

    Returns:
        Rows of measure, value and unit; the unit names the denominator of a share.

    """
    blocks = trace.prompt_blocks.astype(np.int64)
    request_of = np.repeat(np.arange(len(trace)), blocks)
    first_place = np.cumsum(blocks) - blocks
    place = np.arange(len(request_of)) - np.repeat(first_place, blocks)
    keys = trace.keys[trace.offsets[:-1][request_of].astype(np.int64) + place]
    times = trace.arrivals[request_of]
    uses, intervals, lifetimes = _reuse(keys, times)
    rows: list[dict[str, Any]] = []

    def add(measure: str, value: float, unit: str) -> None:
        rows.append({"measure": measure, "value": value, "unit": unit})

    add("requests", len(trace), "requests")
    add("duration", float(trace.arrivals[-1]), "seconds")
    sessions = trace.sessions[trace.sessions >= 0]
    if len(sessions):
        add("sessions", len(np.unique(sessions)), "sessions")
    add("prompt blocks", len(keys), "blocks")
    add("distinct prompt blocks", len(uses), "blocks")
    for q in (50, 90, 99):
        add(
            f"prompt length p{q}",
            float(np.percentile(trace.prompt_tokens, q)),
            "tokens",
        )
    for q in (50, 90, 99):
        add(
            f"output length p{q}",
            float(np.percentile(trace.output_tokens, q)),
            "tokens",
        )
    add("infinite cache", trace.infinite_hit_rate(), "share of prompt blocks")
    if len(uses):
        add("used once", float((uses == 1).mean()), "share of distinct blocks")
    for n in range(1, 5):
        if (uses >= n).any():
            again = float((uses > n).sum() / (uses >= n).sum())
            add(
                f"used again after {n}", again, f"share of blocks with {n} uses or more"
            )
    for q in (50, 90, 99):
        if len(intervals):
            add(f"reuse interval p{q}", float(np.percentile(intervals, q)), "seconds")
    for q in (50, 90, 99):
        if len(lifetimes):
            add(
                f"lifetime of reused blocks p{q}",
                float(np.percentile(lifetimes, q)),
                "seconds",
            )
    if len(sessions) == len(trace):
        _add_sessions(add, trace, keys, request_of)
    return rows


def _add_sessions(
    add: Callable[[str, float, str], None],
    trace: Trace,
    keys: "np.ndarray[Any, Any]",
    request_of: "np.ndarray[Any, Any]",
) -> None:
    """What sessions are like, and which kind of session blocks belong to."""
    _, session_of, turns = np.unique(
        trace.sessions, return_inverse=True, return_counts=True
    )
    multi = turns > 1
    add(
        "single-turn",
        float((~multi[session_of]).mean()),
        "share of requests",
    )
    order = np.lexsort((trace.arrivals, session_of))
    times, owners = trace.arrivals[order], session_of[order]
    gaps = np.diff(times)[owners[1:] == owners[:-1]]
    lasts = np.zeros(len(turns))
    np.maximum.at(lasts, session_of, trace.arrivals)
    firsts = np.full(len(turns), np.inf)
    np.minimum.at(firsts, session_of, trace.arrivals)
    footprint = np.zeros(len(turns), dtype=np.int64)
    np.maximum.at(footprint, session_of, trace.prompt_blocks.astype(np.int64))
    if multi.any():
        tokens = trace.prompt_tokens[multi[session_of]]
        add("prompt length of multi-turn p50", float(np.median(tokens)), "tokens")
        add("turns of multi-turn, mean", float(turns[multi].mean()), "requests")
        add("turns, most", int(turns.max()), "requests")
        add("gap in a session p50", float(np.median(gaps)), "seconds")
        add("gaps under 22 minutes", float((gaps < 1320).mean()), "share of gaps")
        for q in (50, 99):
            lengths = (lasts - firsts)[multi]
            add(
                f"multi-turn session lasts p{q}",
                float(np.percentile(lengths, q)),
                "seconds",
            )
    for q in (50, 99):
        add(f"session's blocks p{q}", float(np.percentile(footprint, q)), "blocks")
    largest = np.sort(footprint)[::-1]
    tenth = largest[: max(1, len(largest) // 10)].sum() / max(1, largest.sum())
    add("blocks of the largest tenth", float(tenth), "share of sessions' blocks")

    distinct, number = np.unique(keys, return_inverse=True)
    uses = np.bincount(number, minlength=len(distinct))
    of_multi = np.zeros(len(distinct), dtype=bool)
    of_multi[number[multi[session_of[request_of]]]] = True
    owners = session_of[request_of]
    low = np.full(len(distinct), len(turns))
    np.minimum.at(low, number, owners)
    high = np.full(len(distinct), -1)
    np.maximum.at(high, number, owners)
    shared = of_multi & (low < high)
    for name, chosen in (
        ("of single turns only", ~of_multi),
        ("of several sessions, a multi-turn one too", shared),
    ):
        if len(distinct):
            add(f"blocks {name}", float(chosen.mean()), "share of distinct blocks")
            accesses = float(uses[chosen].sum() / uses.sum())
            add(f"uses {name}", accesses, "share of prompt blocks")
    if (~of_multi).any():
        once = float((uses[~of_multi] == 1).mean())
        add("used once, of single turns only", once, "share of those blocks")


def _reuse(
    keys: "np.ndarray[Any, Any]", times: "np.ndarray[Any, Any]"
) -> tuple["np.ndarray[Any, Any]", ...]:
    """Uses of each distinct key, seconds between uses, seconds from first to last."""
    order = np.argsort(keys, kind="stable")
    sorted_keys, sorted_times = keys[order], times[order]
    same = sorted_keys[1:] == sorted_keys[:-1]
    starts = np.flatnonzero(np.concatenate(([len(keys) > 0], ~same)))
    uses = np.diff(np.append(starts, len(keys)))
    lifetimes = sorted_times[starts + uses - 1] - sorted_times[starts]
    return uses, np.diff(sorted_times)[same], lifetimes[uses > 1]
