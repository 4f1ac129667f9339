# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Collects requests into a trace's columns, in memory or, from a size on, in a file.

The names of the blocks are all but a few bytes of a trace. Where they do not fit into
memory they go to a temporary file that is mapped: a replay reads them once, from front
to back, and the kernel keeps what it has room for. The file goes when the trace goes.
"""

import os
import tempfile
import weakref
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from vllm._eviction_C import number_keys

from vllm.benchmarks.eviction.trace import Trace

Row = tuple[float, int, int, int]
"""Arrival in seconds, tokens in, tokens out, session or -1."""
Keys = NDArray[np.uint64]


class Columns:
    """Requests in the order in which they are read.

    Args:
        memory: Bytes of block names to hold; more of them go to a file.

    """

    def __init__(self, memory: int):
        self._memory = memory
        self.arrivals = array("d")
        self.prompts = array("I")
        self.outputs = array("I")
        self.sessions = array("q")
        self._lengths = array("I")
        self._held: list[Keys] = []
        self._bytes = 0
        self._file: _KeyFile | None = None

    def __len__(self) -> int:
        return len(self.arrivals)

    def add(self, row: Row, keys: Keys) -> None:
        """Append a request, with the names of its full blocks."""
        arrival, prompt, output, session = row
        self.arrivals.append(arrival)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.sessions.append(session)
        self._lengths.append(len(keys))
        self._bytes += keys.nbytes
        self._held.append(keys)
        if self._bytes > self._memory:
            self._file = self._file or _KeyFile()
            self._file.write(self._held)
            self._held.clear()
            self._bytes = 0

    def trace(
        self,
        block_size: int,
        arrivals: NDArray[np.float64] | None = None,
        seconds: float | None = None,
    ) -> Trace:
        """Put the requests in order of arrival, the first at 0 seconds.

        Args:
            block_size: Tokens.
            arrivals: Seconds, in place of those that were read; infinity leaves a
                request out.
            seconds: Requests that come later than this after the first are left out.

        """
        if arrivals is None:
            arrivals = np.array(self.arrivals, dtype=np.float64)
        order = np.argsort(arrivals, kind="stable")
        start = arrivals[order[0]] if len(order) else 0.0
        last = np.inf if seconds is None else start + seconds
        order = order[(arrivals[order] <= last) & np.isfinite(arrivals[order])]
        lengths = np.array(self._lengths, dtype=np.int64)
        offsets = np.zeros(len(order) + 1, dtype=np.uint64)
        np.cumsum(lengths[order], out=offsets[1:])
        keys, last_key = self._keys(order, lengths)
        return Trace(
            block_size=block_size,
            arrivals=arrivals[order] - start,
            prompt_tokens=np.array(self.prompts, dtype=np.uint32)[order],
            output_tokens=np.array(self.outputs, dtype=np.uint32)[order],
            offsets=offsets,
            keys=keys,
            sessions=np.array(self.sessions, dtype=np.int64)[order],
            last_key=last_key,
        )

    def _keys(
        self, order: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[Keys, int]:
        if self._file is None:
            chosen = [self._held[i] for i in order]
            names = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.uint64)
            numbers = np.empty_like(names)
            return numbers, number_keys(names, numbers)
        # To number them would take a table of all, in memory.
        self._file.write(self._held)
        self._held.clear()
        read = self._file.mapped()
        starts = np.cumsum(lengths) - lengths
        if (np.diff(order) == 1).all() and (not len(order) or order[0] == 0):
            return read[: int(lengths[: len(order)].sum())], 0
        sorted_file = _KeyFile()
        for i in order:
            sorted_file.write([read[starts[i] : starts[i] + lengths[i]]])
        return sorted_file.mapped(), 0


class _KeyFile:
    def __init__(self) -> None:
        number, name = tempfile.mkstemp(prefix="eviction-trace-", suffix=".u64")
        self._path = Path(name)
        self._out = os.fdopen(number, "wb", buffering=1 << 20)
        # Also at the end of the program, and after a fault.
        self._remove = weakref.finalize(self, self._path.unlink, missing_ok=True)

    def write(self, keys: list[Keys]) -> None:
        for each in keys:
            self._out.write(each.tobytes())

    def mapped(self) -> Keys:
        """The keys, whose file goes with them."""
        self._out.flush()
        if not self._out.tell():
            return np.zeros(0, dtype=np.uint64)
        mapped = np.memmap(self._path, dtype=np.uint64, mode="r")
        self._remove.detach()
        weakref.finalize(mapped, self._path.unlink, missing_ok=True)
        return mapped
