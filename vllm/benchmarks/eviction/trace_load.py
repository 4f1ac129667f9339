# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Reads a file of any known format into a trace.

A file is read line by line, and what is kept is the columns: eight bytes a block, in
memory or in a file (`trace_columns`). A line that cannot be understood ends the reading
or is skipped and counted, by choice; both name the line.
"""

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_columns import Columns, Row
from vllm.benchmarks.eviction.trace_files import block_keys, read_lines
from vllm.benchmarks.eviction.trace_formats import FORMATS, Format, Request
from vllm.v1.core.eviction.registry import nearest

_FAULTS = (
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    RecursionError,
)
"""What a line that cannot be understood raises."""
_LARGEST_BLOCK = 1 << 20  # tokens


@dataclass(frozen=True)
class Reading:
    """How to read.

    Attributes:
        block_size: Tokens of a block in the result; must divide the file's. None
            takes the file's.
        format: A name of `FORMATS`, or None to look at the first line.
        skip_bad_lines: Instead of failing.
        seconds: Requests that come later than this after the first are left out.
        sessions: How many sessions to take, in the order drawn; all by default.
            Only for formats whose lines are sessions, as are the next three.
        sessions_per_hour: Starts are Poisson with this rate,
        concurrency: or, when given, a session starts when another ends, so that
            this many run.
        seed: Of the drawing.
        memory: Bytes of block names, eight a block, to hold in memory; more of them
            go to a temporary file.

    """

    block_size: int | None = None
    format: str | None = None
    skip_bad_lines: bool = False
    seconds: float | None = None
    sessions: int | None = None
    sessions_per_hour: float = 40.0
    concurrency: int | None = None
    seed: int = 1
    memory: int = 4 << 30


@dataclass
class Loaded:
    """A trace and what was seen on the way.

    Attributes:
        trace: The requests.
        format: Name of the file's format.
        bad_lines: One line of text for each line that was skipped.

    """

    trace: Trace
    format: str
    bad_lines: list[str] = field(default_factory=list)


def load_trace(path: str | Path, reading: Reading | None = None) -> Loaded:
    """Read a trace.

    Args:
        path: The file; `.gz` and `.zst` are unpacked.
        reading: How.

    Raises:
        ValueError: One line that names the file, and the line where it is one.

    """
    try:
        return _Loader(Path(path), reading or Reading()).load()
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file.") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


class _Loader:
    def __init__(self, path: Path, reading: Reading):
        self._path = path
        self._reading = reading
        self._columns = Columns(reading.memory)
        self._sessions: dict[str | int | None, int] = {}
        self._bad: list[str] = []
        self._size = reading.block_size
        self._tokens_per_id: int | None = None  # where one line tells it for others
        self._waiting: list[tuple[int, Any]] = []  # lines to which it is not told yet
        self._last = -np.inf

    def load(self) -> Loaded:
        kind = self._named_format()
        try:
            for number, text in read_lines(self._path):
                try:
                    line = self._parsed(text, kind)
                    if kind is None:
                        kind = self._detect(line)
                    self._take(kind, line, number)
                except _Fatal:
                    raise
                except _FAULTS as error:
                    self._bad_line(number, error)
            if kind is not None and self._waiting:
                self._told(16, kind)
        except zstandard.ZstdError as error:
            raise ValueError(f"{self._path}: cannot be read: {error}") from None
        if kind is None or not len(self._columns):
            skipped = f"; the first fault: {self._bad[0]}" if self._bad else ""
            raise ValueError(f"{self._path}: holds no request{skipped}.")
        assert self._size is not None
        trace = self._columns.trace(
            self._size,
            self._drawn_arrivals() if kind.sessions else None,
            self._reading.seconds,
        )
        return Loaded(trace, kind.name, self._bad)

    def _named_format(self) -> Format | None:
        name = self._reading.format
        if name is None:
            return None
        by_name = {each.name: each for each in FORMATS}
        if name not in by_name:
            raise ValueError(
                f"Unknown trace format {name!r}: choose from {', '.join(by_name)}."
                f"{nearest(name, list(by_name))}"
            )
        return by_name[name]

    def _parsed(self, text: str, kind: Format | None) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            if kind is None and not self._reading.skip_bad_lines:
                return self._detect("no JSON")
            raise

    def _detect(self, line: Any) -> Format:
        for each in FORMATS:
            if each.matches(line):
                return each
        has = ", ".join(line) if isinstance(line, dict) else str(line)[:40]
        tried = "; ".join(f"{each.name} ({', '.join(each.needs)})" for each in FORMATS)
        raise _Fatal(
            f"{self._path}: not a known format. Its first line has {has or 'nothing'}; "
            f"tried {tried}."
        )

    def _take(self, kind: Format, line: Any, number: int) -> None:
        # A bad turn must not leave half a session.
        requests = list(kind.requests(line, number))
        if any(each.tokens_per_id is None for each in requests):
            if self._tokens_per_id is None:
                self._waiting.append((number, line))
                return
            size_told = self._tokens_per_id
            requests = [each._replace(tokens_per_id=size_told) for each in requests]
        elif requests and self._tokens_per_id is None:
            self._told(requests[0].tokens_per_id, kind)
        taken: list[tuple[Row, NDArray[np.uint64]]] = []
        for request in requests:
            at = request.arrival
            if not np.isfinite(at):
                raise ValueError(f"the time is {at}.")
            if kind.in_order and at < self._last:
                raise ValueError(
                    f"time goes backwards, from {self._last:g} to {at:g} seconds."
                )
            row = (at, request.prompt, request.output, self._session(request))
            index = len(self._columns) + len(taken)
            tokens_per_id = request.tokens_per_id or 0
            size = self._block_size(tokens_per_id)
            keys = block_keys(row, request.ids, index, tokens_per_id, size)
            taken.append((row, keys))
        if kind.in_order and taken:
            self._last = taken[-1][0][0]
        for row, keys in taken:
            self._columns.add(row, keys)

    def _told(self, tokens_per_id: int | None, kind: Format) -> None:
        """Take the lines that waited to be told what their ids stand for."""
        self._tokens_per_id = tokens_per_id
        waiting, self._waiting = self._waiting, []
        for number, line in waiting:
            try:
                self._take(kind, line, number)
            except _Fatal:
                raise
            except _FAULTS as error:
                self._bad_line(number, error)

    def _block_size(self, tokens_per_id: int) -> int:
        if not 0 < tokens_per_id <= _LARGEST_BLOCK:
            raise ValueError(f"blocks of {tokens_per_id:,} tokens.")
        if self._size is None:
            self._size = tokens_per_id
        if self._size <= 0 or tokens_per_id % self._size:
            raise _Fatal(
                f"{self._path}: --block-size is {self._size}: must divide the "
                f"{tokens_per_id} tokens of the file's blocks."
            )
        return self._size

    def _session(self, request: Request) -> int:
        if request.session is None:
            return -1
        if request.parent in self._sessions:
            self._sessions[request.session] = self._sessions[request.parent]
        return self._sessions.setdefault(request.session, len(self._sessions))

    def _bad_line(self, number: int, error: Exception) -> None:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        text = f"{self._path}, line {number}: {reason}"
        if not self._reading.skip_bad_lines:
            raise _Fatal(text)
        self._bad.append(text)

    def _drawn_arrivals(self) -> NDArray[np.float64]:
        """Put sessions at drawn times; those in excess of what is asked for go."""
        reading = self._reading
        rng = np.random.default_rng(reading.seed)
        numbers = np.array(self._columns.sessions, dtype=np.int64)
        since_start = np.array(self._columns.arrivals, dtype=np.float64)
        drawn = rng.permutation(numbers.max() + 1)[: reading.sessions]
        lasts = np.zeros(numbers.max() + 1)
        np.maximum.at(lasts, numbers, since_start)
        starts = np.full(len(lasts), np.inf)
        if reading.concurrency is None:
            gaps = rng.exponential(3600 / reading.sessions_per_hour, len(drawn))
            starts[drawn] = np.cumsum(gaps)
        else:
            ends = np.zeros(reading.concurrency)
            for session in drawn:
                free = int(np.argmin(ends))
                starts[session] = ends[free]
                ends[free] += lasts[session]
        return starts[numbers] + since_start


class _Fatal(ValueError):
    """A fault that no skipping of lines helps with."""
