# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A trace in slices of time, and what each policy hit in each.

A policy is replayed once; its hits are put down to the slice in which a request
arrived. So all policies are compared on the same requests, however long each lets one
wait, and none starts a slice with an empty cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace import Trace

_WIDTHS = (1, 5, 10, 30, 60, 150, 300, 600, 900, 1800, 3600)
_SLICES = 24
_MOST_SLICES = 10_000


@dataclass(frozen=True)
class Slices:
    """Requests by time of arrival.

    Attributes:
        width: Seconds.
        of_request: int64 (requests,); a number for each.
        requests: int64 (slices,).
        prompt_blocks: int64 (slices,); full blocks of the prompts.

    """

    width: float
    of_request: NDArray[np.int64]
    requests: NDArray[np.int64]
    prompt_blocks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.requests)

    def sums(self, values: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Add up what there is a value of for each request."""
        sums = np.bincount(self.of_request, values, minlength=len(self))
        return sums.astype(np.int64)


def cut(trace: Trace, width: float | None = None) -> Slices:
    """Cut a trace, whose requests are in order of arrival.

    Args:
        trace: With one request or more.
        width: Seconds; by default such that there are about 24 slices, and no
            longer than an hour.

    Raises:
        ValueError: They would be more than anybody reads; one line.

    """
    last = float(trace.arrivals[-1])
    if width is None:
        width = next((each for each in _WIDTHS if each >= last / _SLICES), _WIDTHS[-1])
        width = max(width, last / _MOST_SLICES * 2)
    if last / width >= _MOST_SLICES:
        raise ValueError(
            f"--slice is {width:g}: the trace has {last:,.0f} s, and would be cut into "
            f"more than {_MOST_SLICES:,} slices."
        )
    of_request = (trace.arrivals // width).astype(np.int64)
    requests = np.bincount(of_request)
    blocks = np.bincount(of_request, trace.prompt_blocks).astype(np.int64)
    return Slices(width, of_request, requests, blocks)


@dataclass(frozen=True)
class Standing:
    """How policies compare, slice by slice.

    Attributes:
        best: Has the most hits in all.
        wins: Of each policy, slices in which it has the most hits; where several
            have, the one that is best in all.
        swing: Hits that a change to each slice's best would add, over all prompt
            blocks. No replay has them: a policy that takes over finds another's
            cache.

    """

    best: str
    wins: dict[str, int]
    swing: float


def stand(slices: Slices, hits: Mapping[str, NDArray[np.uint32]]) -> Standing:
    """Compare policies.

    Args:
        slices: Of the trace.
        hits: Of each policy, by request.

    """
    # Best first, so that it has the ties.
    names = sorted(hits, key=lambda name: -int(hits[name].sum(dtype=np.int64)))
    table = np.stack([slices.sums(hits[name]) for name in names])
    first = np.bincount(
        table.argmax(axis=0)[slices.prompt_blocks > 0], minlength=len(names)
    )
    swing = (table.max(axis=0) - table[0]).sum() / max(1, slices.prompt_blocks.sum())
    return Standing(
        names[0], dict(zip(names, first.tolist(), strict=True)), float(swing)
    )
