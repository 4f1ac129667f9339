# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How a trace uses its blocks, before any cache: what `describe` prints and draws.

The measures are those by which "When Fancy Eviction Fails" (section 4) tells the
traffic of a prefix cache from that of other caches. A use of a block is a request
whose prompt holds it in full. About 64 bytes for each use are needed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace import Trace

OVERLAP_WINDOW = 300.0
"""Seconds; the paper's. Shorter traces are cut into 24."""

_BYTES = 64  # a use, with what sorting takes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """Uses of the distinct blocks of all prompts.

    Attributes:
        number: int64 (uses,); which block, from 0.
        request: int64 (uses,); of which request, in order of arrival.
        uses: int64 (blocks,).
        lifetimes: float64 (blocks,); seconds from the first use to the last.
        intervals: float64 (uses - blocks,); seconds between two uses of a block.
        interval_uses: int64 (uses - blocks,); all uses of that block.

    """

    number: Ints
    request: Ints
    uses: Ints
    lifetimes: Floats
    intervals: Floats
    interval_uses: Ints


def blocks_of(trace: Trace) -> Blocks:
    """Measure the uses of blocks.

    Raises:
        ValueError: They do not fit into memory; one line.

    """
    trace.require_memory(_BYTES, "describe")
    blocks = trace.prompt_blocks.astype(np.int64)
    request = np.repeat(np.arange(len(trace)), blocks)
    place = np.arange(len(request)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    keys = trace.keys[trace.offsets[:-1][request].astype(np.int64) + place]
    _, number = np.unique(keys, return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    uses = np.bincount(number)
    order = np.argsort(number, kind="stable")
    times = trace.arrivals[request][order]
    same = np.diff(number[order]) == 0
    starts = np.cumsum(uses) - uses
    return Blocks(
        number,
        request,
        uses,
        times[starts + uses - 1] - times[starts],
        np.diff(times)[same],
        uses[number[order][1:][same]],
    )


def reuse_odds(uses: Ints, up_to: int) -> Floats:
    """float64 (up_to,); of the blocks with n uses or more, those with yet another.

    NaN where no block has n uses; n is the place, counted from 1.
    """
    at_least = len(uses) - np.cumsum(np.bincount(uses, minlength=up_to + 2))
    reached = at_least[:up_to].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reached > 0, at_least[1 : up_to + 1] / reached, np.nan)


@dataclass(frozen=True)
class WorkingSets:
    """Blocks used in windows of time.

    Attributes:
        window: Seconds.
        sizes: int64 (windows,); distinct blocks.
        lags: int64; windows apart.
        overlap: float64, one for each lag; blocks used in both of two windows over
            blocks used in either, the mean of all pairs so far apart.

    """

    window: float
    sizes: Ints
    lags: Ints
    overlap: Floats


def working_sets(trace: Trace, blocks: Blocks) -> WorkingSets:
    """Compare what is used in windows 1, 2, 4... windows apart."""
    span = float(trace.arrivals[-1])
    window = OVERLAP_WINDOW if span >= 4 * OVERLAP_WINDOW else max(span / 24, 1e-6)
    count = int(span // window) + 1
    window_of = (trace.arrivals // window).astype(np.int64)
    bounds = np.searchsorted(window_of[blocks.request], np.arange(count + 1))
    sets = [np.unique(blocks.number[bounds[i] : bounds[i + 1]]) for i in range(count)]
    sizes = np.array([len(each) for each in sets], dtype=np.int64)
    lags = [1 << i for i in range(count.bit_length()) if 1 << i < count]
    overlaps: list[list[float]] = [[] for _ in lags]
    used = np.zeros(len(blocks.uses), dtype=np.bool_)
    for i, mine in enumerate(sets):
        used[mine] = True
        for lag, found in zip(lags, overlaps, strict=True):
            if i + lag < count and (len(mine) or sizes[i + lag]):
                both = int(used[sets[i + lag]].sum())
                found.append(both / (len(mine) + int(sizes[i + lag]) - both))
        used[mine] = False
    kept = [i for i, found in enumerate(overlaps) if found]
    return WorkingSets(
        window,
        sizes,
        np.array([lags[i] for i in kept], dtype=np.int64),
        np.array([np.mean(overlaps[i]) for i in kept], dtype=np.float64),
    )


@dataclass(frozen=True)
class Sessions:
    """Requests by session, where every request has one.

    Attributes:
        of_request: int64 (requests,); numbers from 0.
        turns: int64 (sessions,); requests.
        durations: float64 (sessions,); seconds from the first arrival to the last.
        gaps: float64; seconds between arrivals that follow one another in a session.
        footprints: int64 (sessions,); blocks of its longest prompt.

    """

    of_request: Ints
    turns: Ints
    durations: Floats
    gaps: Floats
    footprints: Ints

    def shares(self) -> Floats:
        """float64 (sessions,); what the largest 1, 2... sessions hold of all blocks."""
        largest = np.sort(self.footprints)[::-1]
        return np.cumsum(largest) / max(1, int(largest.sum()))


def sessions_of(trace: Trace) -> Sessions | None:
    """Measure sessions; None where a request has none."""
    if not len(trace) or (trace.sessions < 0).any():
        return None
    _, owner, turns = np.unique(trace.sessions, return_inverse=True, return_counts=True)
    order = np.lexsort((trace.arrivals, owner))
    times, owners = trace.arrivals[order], owner[order]
    lasts = np.zeros(len(turns))
    np.maximum.at(lasts, owner, trace.arrivals)
    firsts = np.full(len(turns), np.inf)
    np.minimum.at(firsts, owner, trace.arrivals)
    footprints = np.zeros(len(turns), dtype=np.int64)
    np.maximum.at(footprints, owner, trace.prompt_blocks.astype(np.int64))
    return Sessions(
        owner.astype(np.int64),
        turns,
        lasts - firsts,
        np.diff(times)[owners[1:] == owners[:-1]],
        footprints,
    )
