# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Records what the prefix cache was asked for: lengths and block ids, no text.

One JSON line for each admitted request, in order of arrival, in the public form of
such traces:

    {"timestamp": 12.345, "input_length": 1042, "output_length": 87,
     "hash_ids": [..., ...], "block_size": 16}

`timestamp` is in seconds since the recording began. There is one id for each block
of the prompt, and one for a partial block at its end, which is never the same twice.
An id is 53 bits (exact in JSON everywhere) of a hash keyed with a secret of the run:
equal ids are equal prefixes, and nothing else can be learnt from one, not even by
who knows the prompt. The secret is never written.

The scheduler puts a request into a bounded queue and goes on; a thread hashes and
writes. When it cannot keep up, requests are left out; when the disk cannot, the
recording ends. Both are one warning. Serving goes on.
"""

import gzip
import hashlib
import heapq
import json
import os
import queue
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from vllm.logger import init_logger

logger = init_logger(__name__)

MAX_BYTES = 1 << 30
"""A file that grows beyond this is rotated; before compression."""
KEPT_FILES = 8
"""Rotated files that are kept beside the current one: PATH.1 is the newest."""
MAX_PENDING = 4096
"""Requests in the queue, and requests that wait for an earlier one to end."""


@dataclass(order=True)
class Record:
    """One request.

    Attributes:
        serial: Number of its admission; the order of the lines.
        arrival: Seconds, on the scheduler's clock.
        input_length: Tokens of the prompt.
        output_length: Tokens.
        hashes: Of the prompt's full blocks.
        has_tail: The prompt ends with a partial block.

    """

    serial: int
    arrival: float = field(compare=False)
    input_length: int = field(compare=False)
    output_length: int = field(compare=False)
    hashes: list[bytes] = field(compare=False)
    has_tail: bool = field(compare=False)


class Recorder:
    """Writes records to a file on a thread of its own.

    Args:
        path: Compressed if it ends in `.gz` or `.zst`. An existing file is rotated.
        block_size: Tokens in a block, written into each line.
        max_bytes: See `MAX_BYTES`.
        max_pending: See `MAX_PENDING`.

    """

    def __init__(
        self,
        path: str,
        block_size: int,
        max_bytes: int = MAX_BYTES,
        max_pending: int = MAX_PENDING,
    ):
        self.path = Path(path)
        self.dropped = 0
        self.failed = False
        self._block_size = block_size
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._secret = secrets.token_bytes(32)
        self._start: float | None = None
        self._queue: queue.Queue[Record | int | None] = queue.Queue(max_pending)
        self._thread = threading.Thread(
            target=self._run, name="eviction-recorder", daemon=True
        )
        self._thread.start()

    def admitted(self, serial: int) -> None:
        """A request was admitted; its record follows at its end."""
        self._put(serial)

    def finished(self, record: Record) -> None:
        """A request is over."""
        self._put(record)

    def close(self) -> None:
        """Write what is pending and close the file."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=10)

    def _put(self, item: Record | int) -> None:
        if self.failed:
            return
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning(
                    "The eviction trace file %s cannot keep up: requests are left out.",
                    self.path,
                )

    # ---- On the thread. ----

    def _run(self) -> None:
        open_serials: set[int] = set()  # admitted and not finished
        ready: list[Record] = []  # a heap: finished, behind an earlier one
        try:
            writer = _RotatingFile(self.path, self._max_bytes)
            with writer:
                while (item := self._queue.get()) is not None:
                    if isinstance(item, int):
                        open_serials.add(item)
                        continue
                    open_serials.discard(item.serial)
                    heapq.heappush(ready, item)
                    while ready and (
                        len(ready) > self._max_pending
                        or ready[0].serial < min(open_serials, default=item.serial + 1)
                    ):
                        writer.write(self._line(heapq.heappop(ready)))
                    if self._queue.empty():
                        writer.flush()
                while ready:
                    writer.write(self._line(heapq.heappop(ready)))
        except Exception as error:
            self.failed = True
            logger.warning(
                "The eviction trace file %s ends here: %s. Serving goes on.",
                self.path,
                error,
            )

    def _line(self, record: Record) -> str:
        if self._start is None:
            self._start = record.arrival
        ids = [self._id(block) for block in record.hashes]
        if record.has_tail:
            ids.append(self._id(b"tail" + record.serial.to_bytes(8, "little")))
        return json.dumps(
            {
                "timestamp": round(max(0.0, record.arrival - self._start), 6),
                "input_length": record.input_length,
                "output_length": record.output_length,
                "hash_ids": ids,
                "block_size": self._block_size,
            },
            separators=(",", ":"),
        )

    def _id(self, data: bytes) -> int:
        digest = hashlib.blake2b(data, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") >> 11


class _RotatingFile:
    """Lines into a file, plain or compressed by its name, rotated by size."""

    def __init__(self, path: Path, max_bytes: int):
        self._path = path
        self._max_bytes = max_bytes
        self._written = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "_RotatingFile":
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, line: str) -> None:
        assert self._file is not None
        data = line.encode() + b"\n"
        if self._written and self._written + len(data) > self._max_bytes:
            self._file.close()
            self._open()
        self._file.write(data)
        self._written += len(data)

    def flush(self) -> None:
        # A compressor's flush costs ratio; its file is whole when it is closed.
        if self._file is not None and self._path.suffix not in (".gz", ".zst"):
            self._file.flush()

    def _open(self) -> None:
        self._rotate()
        self._written = 0
        # Only for the owner: lengths and timing say something about users.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        raw = os.fdopen(descriptor, "wb")
        if self._path.suffix == ".gz":
            self._file = gzip.GzipFile(fileobj=raw, mode="wb")
        elif self._path.suffix == ".zst":
            import zstandard

            self._file = zstandard.ZstdCompressor().stream_writer(raw)  # type: ignore[assignment]
        else:
            self._file = raw

    def _rotate(self) -> None:
        """PATH becomes PATH.1, which becomes PATH.2; the suffix stays last."""

        def numbered(number: int) -> Path:
            suffix = self._path.suffix
            return self._path.with_name(f"{self._path.stem}.{number}{suffix}")

        if not self._path.exists():
            return
        for number in range(KEPT_FILES, 1, -1):
            if numbered(number - 1).exists():
                os.replace(numbered(number - 1), numbered(number))
        os.replace(self._path, numbered(1))
