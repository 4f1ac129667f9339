# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a trace is made of, before any cache: how much of it repeats, and how soon."""

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
    return rows


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
