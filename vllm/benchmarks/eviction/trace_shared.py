# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The trace's columns in shared memory, for the processes of a sweep.

However many processes replay it, a trace is there once more, not once for each.
"""

import atexit
import os
from dataclasses import dataclass, fields
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from vllm.benchmarks.eviction.trace import Trace

_ALIGNMENT = 64  # bytes, a line of the processor's caches
_FOLDER = Path("/dev/shm")  # where Linux has it; a container's is often small


@dataclass(frozen=True)
class Column:
    """Where a column lies.

    Attributes:
        name: Of the trace's field.
        dtype: As numpy writes it.
        length: Entries.
        start: Bytes from the start of the memory.
        file: Where it is mapped from instead, if it is in a file.

    """

    name: str
    dtype: str
    length: int
    start: int
    file: str | None = None


@dataclass(frozen=True)
class SharedTrace:
    """Names a trace in shared memory; small, to be sent to other processes."""

    memory: str
    block_size: int
    last_key: int
    columns: tuple[Column, ...]


class TraceOwner:
    """Copies a trace into shared memory, which goes at the end of the `with`.

    Raises:
        OSError: There is not so much shared memory.

    """

    def __init__(self, trace: Trace):
        columns, end = [], 0
        for each in fields(Trace):
            array = getattr(trace, each.name)
            if not isinstance(array, np.ndarray):
                continue
            if isinstance(array, np.memmap):
                path = str(array.filename)
                columns.append(Column(each.name, array.dtype.str, len(array), 0, path))
                continue
            columns.append(Column(each.name, array.dtype.str, len(array), end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._memory = SharedMemory(create=True, size=max(end, 1))
        try:
            _reserve(self._memory)
        except OSError as error:
            self.__exit__(None, None, None)
            raise OSError(
                f"the trace needs {end / 2**20:,.0f} MiB of shared memory: "
                f"{error.strerror} in {_FOLDER}; --workers 1 needs none."
            ) from None
        for column in columns:
            if column.file is None:
                _view(self._memory, column)[:] = getattr(trace, column.name)
        self.shared = SharedTrace(
            self._memory.name, trace.block_size, trace.last_key, tuple(columns)
        )

    def __enter__(self) -> SharedTrace:
        """Return what `attach` takes."""
        return self.shared

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trail: TracebackType | None,
    ) -> None:
        """Remove the memory; processes that are attached keep it until they end."""
        self._memory.close()
        self._memory.unlink()


def attach(shared: SharedTrace) -> tuple[Trace, SharedMemory]:
    """Open a shared trace without a copy.

    Returns:
        The trace, and the memory, to be closed when no array of the trace is left.

    """
    memory = SharedMemory(name=shared.memory)
    columns: dict[str, Any] = {
        column.name: _view(memory, column) for column in shared.columns
    }
    return (
        Trace(block_size=shared.block_size, last_key=shared.last_key, **columns),
        memory,
    )


_attached: list[Trace] = []


def attach_for_life(shared: SharedTrace) -> None:
    """Open a trace for `attached_trace`, until this process ends."""
    trace, memory = attach(shared)
    _attached.append(trace)
    # Memory that arrays still look at cannot be closed, and says so at exit.
    atexit.register(memory.close)
    atexit.register(_attached.clear)
    del trace


def attached_trace() -> Trace:
    """Return the trace that this process opened for life."""
    return _attached[-1]


def _reserve(memory: SharedMemory) -> None:
    """Take the memory now. Else a process dies of the first page that is not there.

    Raises:
        OSError: There is not so much.

    """
    file = _FOLDER / memory.name
    if file.exists():
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, memory.size)


def _view(memory: SharedMemory, column: Column) -> "np.ndarray[Any, Any]":
    if column.file is not None:
        return np.memmap(column.file, column.dtype, "r", shape=(column.length,))
    return np.ndarray(
        (column.length,), np.dtype(column.dtype), memory.buf, column.start
    )
