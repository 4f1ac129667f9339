# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A file of lines that is sound at any moment.

A server's engine is killed when the server ends, unless it is given a shutdown
timeout: nothing is ever closed. So a file is written in pieces that are whole by
themselves, each in one go: a line of a plain file, a gzip member or a zstd frame of
some seconds' lines. Members and frames one after the other are one file to every
reader (python-zstandard wants to be told `read_across_frames=True`). When the disk
is full, half a piece is taken back.
"""

import gzip
import os
import stat
import time
from pathlib import Path
from typing import IO

KEPT_FILES = 8
"""Rotated files that are kept beside the current one; NAME.1.SUFFIX is the newest."""
_PIECE_SECONDS = 5.0
"""Time to gather lines for compression; what a kill can lose."""
_PIECE_BYTES = 1 << 20
"""And how much to gather at most."""


class RecordFile:
    """Lines into a file, plain or compressed by its name, rotated by size.

    Args:
        path: `.gz` and `.zst` compress. An existing file is rotated.
        max_bytes: A file that would grow beyond this is rotated; before compression.

    Raises:
        OSError: On entering, writing, flushing and leaving.

    """

    def __init__(self, path: Path, max_bytes: int):
        self._path = path
        self._max_bytes = max_bytes
        self._compresses = path.suffix in (".gz", ".zst")
        self._file: IO[bytes] | None = None
        self._size = 0  # on the disk
        self._written = 0  # before compression
        self._gathered = bytearray()
        self._gathering_since = 0.0

    def __enter__(self) -> "RecordFile":
        self._open()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if exception == (None, None, None):
                self._append()
        finally:
            self._close()

    def write(self, line: bytes) -> None:
        """Append a line; its end is added."""
        if self._written and self._written + len(line) + 1 > self._max_bytes:
            self._append()
            self._close()
            self._open()
        if not self._gathered:
            self._gathering_since = time.monotonic()
        self._gathered += line + b"\n"
        self._written += len(line) + 1
        self.flush()

    def flush(self) -> None:
        """Make what was written readable, if it is time. To be called when idle."""
        if (
            not self._compresses
            or len(self._gathered) >= _PIECE_BYTES
            or time.monotonic() - self._gathering_since >= _PIECE_SECONDS
        ):
            self._append()

    def _append(self) -> None:
        if not self._gathered:
            return
        assert self._file is not None
        piece = memoryview(self._compressed(bytes(self._gathered)))
        self._gathered.clear()
        rest = piece
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size += len(piece)

    def _compressed(self, lines: bytes) -> bytes:
        if self._path.suffix == ".gz":
            return gzip.compress(lines, compresslevel=6)
        if self._path.suffix == ".zst":
            import zstandard

            return zstandard.compress(lines)
        return lines

    def _open(self) -> None:
        self._rotate()
        self._size = self._written = 0
        # Only for the owner: lengths and timing say something about users.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _rotate(self) -> None:
        """NAME.SUFFIX becomes NAME.1.SUFFIX, which becomes NAME.2.SUFFIX."""

        def numbered(number: int) -> Path:
            suffix = self._path.suffix
            return self._path.with_name(f"{self._path.stem}.{number}{suffix}")

        if not os.path.lexists(self._path):
            return
        # Never a device, a pipe, or what a link points to.
        if not stat.S_ISREG(self._path.lstat().st_mode):
            raise OSError(f"{self._path} exists and is not a file")
        for number in range(KEPT_FILES, 1, -1):
            if numbered(number - 1).exists():
                os.replace(numbered(number - 1), numbered(number))
        os.replace(self._path, numbered(1))
