# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A file of lines that is as good as it can be when the process dies.

A plain file ends with a whole line, also when the disk is full or the process is
killed: each line is one write, and half a line is taken back. A compressed file is
whole when it is closed; until then all but the last seconds can be read.
"""

import gzip
import os
import stat
import time
from pathlib import Path
from typing import IO

KEPT_FILES = 8
"""Rotated files that are kept beside the current one; NAME.1.SUFFIX is the newest."""
_FLUSH_SECONDS = 5.0
"""How often a compressor is flushed: each time costs a little of its ratio."""


class RecordFile:
    """Lines into a file, plain or compressed by its name, rotated by size.

    Args:
        path: `.gz` and `.zst` compress. An existing file is rotated.
        max_bytes: A file that would grow beyond this is rotated; before compression.

    Raises:
        OSError: On entering and writing.

    """

    def __init__(self, path: Path, max_bytes: int):
        self._path = path
        self._max_bytes = max_bytes
        self._compresses = path.suffix in (".gz", ".zst")
        self._written = 0  # whole lines, before compression
        self._flushed = 0.0
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None  # compresses into the raw one, or is it

    def __enter__(self) -> "RecordFile":
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, line: bytes) -> None:
        """Append a line; its end is added."""
        data = line + b"\n"
        if self._written and self._written + len(data) > self._max_bytes:
            self._close()
            self._open()
        assert self._file is not None
        if self._compresses:
            self._file.write(data)
        else:
            self._write_whole(self._file, data)
        self._written += len(data)
        self.flush()

    def flush(self) -> None:
        """Make what was written readable, if it is time. To be called when idle."""
        now = time.monotonic()
        if self._compresses and now - self._flushed >= _FLUSH_SECONDS:
            assert self._file is not None
            self._file.flush()
            self._flushed = now

    def _write_whole(self, file: IO[bytes], data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(self._written)
            raise

    def _open(self) -> None:
        self._rotate()
        self._written = 0
        # Only for the owner: lengths and timing say something about users.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._raw = os.fdopen(descriptor, "wb", buffering=-1 if self._compresses else 0)
        if self._path.suffix == ".gz":
            self._file = gzip.GzipFile(fileobj=self._raw, mode="wb")  # type: ignore[assignment]
        elif self._path.suffix == ".zst":
            import zstandard

            compressor = zstandard.ZstdCompressor()
            self._file = compressor.stream_writer(self._raw)  # type: ignore[assignment]
        else:
            self._file = self._raw

    def _close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        finally:
            if self._raw is not None:
                self._raw.close()

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
