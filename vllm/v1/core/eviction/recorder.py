# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Records what the prefix cache was asked for: lengths and block ids, no text.

One JSON line for each admitted request, in order of admission, in the public form of
such traces:

    {"timestamp": 12.345, "input_length": 1042, "output_length": 87,
     "hash_ids": [..., ...], "block_size": 16}

`timestamp` is when the request arrived, in seconds since the first one did. There is
one id for each block of the prompt, and one for a partial block at its end, which is
never the same twice. An id is 53 bits (exact in JSON everywhere) of a hash keyed with
a secret of the run: equal ids are equal prefixes, and nothing else can be learnt from
one, not even by who knows the prompt. The secret is never written.

A line is written when its request and all that were admitted before it have ended.
Where that takes too long, or too much memory, the rest goes ahead and the late one
follows when it ends.

The scheduler puts a finished request into a bounded queue and goes on; a thread
hashes and writes. When it cannot keep up, requests are left out; when the disk
cannot, the recording ends. Both are one warning. Serving goes on.
"""

import atexit
import contextlib
import hashlib
import heapq
import json
import queue
import secrets
import threading
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vllm.logger import init_logger

from vllm.v1.core.eviction.record_file import RecordFile

logger = init_logger(__name__)

MAX_BYTES = 1 << 30
"""A file that grows beyond this is rotated; before compression."""
MAX_PENDING = 4096
"""Requests in the queue, and requests that wait for an earlier one to end."""
MAX_PENDING_BLOCKS = 1 << 21
"""Their blocks; of about 70 bytes in the queue and 8 afterwards."""
MAX_WAIT = 120.0
"""Seconds that lines wait for a request that was admitted before them. They are lost
if the engine is killed meanwhile."""
_NAP = 1.0
"""Seconds after which the thread looks around although nothing came."""
_HASHED_AT_ONCE = 256
"""Blocks, about a millisecond. Then the thread lets the scheduler have the
interpreter, which would otherwise wait for it five times as long."""
_CLOSING_TIME = 10.0
"""Seconds that the engine's shutdown waits for the last lines."""


@dataclass(frozen=True)
class Record:
    """One finished request.

    Attributes:
        serial: Number of its admission; the order of the lines.
        arrival: Seconds, on any clock.
        input_length: Tokens of the prompt.
        output_length: Tokens.
        hashes: Of the prompt's full blocks.
        has_tail: The prompt ends with a partial block.
        oldest_open: The lowest serial that was admitted and has not ended; of a
            later request when there is none.

    """

    serial: int
    arrival: float
    input_length: int
    output_length: int
    hashes: list[bytes]
    has_tail: bool
    oldest_open: int


class _Waiting(NamedTuple):
    """A record whose hashes have become ids: what waits is small."""

    serial: int
    arrival: float
    input_length: int
    output_length: int
    ids: "array[int]"


class Recorder:
    """Writes records to a file on a thread of its own.

    Args:
        path: Compressed if it ends in `.gz` or `.zst`. An existing file is rotated.
        block_size: Tokens in a block, written into each line.
        max_bytes: See `MAX_BYTES`.
        max_pending: See `MAX_PENDING`.
        max_wait: See `MAX_WAIT`.

    Attributes:
        dropped: Requests that were left out.
        failed: The recording has ended.

    """

    def __init__(
        self,
        path: str,
        block_size: int,
        max_bytes: int = MAX_BYTES,
        max_pending: int = MAX_PENDING,
        max_wait: float = MAX_WAIT,
    ):
        self.path = Path(path)
        self.dropped = 0
        self.failed = False
        self._block_size = block_size
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._max_wait = max_wait
        self._secret = secrets.token_bytes(32)
        self._start: float | None = None
        self._closing = False
        self._queue: queue.Queue[Record | None] = queue.Queue(max_pending)
        # Blocks that went into the queue and came out. Each has one writer.
        self._blocks_in = 0
        self._blocks_out = 0
        # Finished, behind an earlier one: a heap, and its blocks.
        self._waiting: list[_Waiting] = []
        self._waiting_blocks = 0
        self._oldest_open = 0
        self._last_write = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name="eviction-recorder", daemon=True
        )
        self._thread.start()
        # An engine inside a program of the user's is not always shut down.
        atexit.register(self.close)

    def finished(self, record: Record) -> None:
        """A request is over. Never waits."""
        if self.failed or self._closing:
            return
        blocks = self._blocks_in - self._blocks_out
        if blocks == 0 or blocks + len(record.hashes) <= MAX_PENDING_BLOCKS:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(record)
                self._blocks_in += len(record.hashes)
                return
        self.dropped += 1
        if self.dropped == 1:
            logger.warning(
                "The eviction trace file %s cannot keep up: requests are left out.",
                self.path,
            )

    def close(self) -> None:
        """Write what is pending, also behind a request that has not ended, and
        close the file. Waits for `_CLOSING_TIME` at most."""
        if self._closing:
            return
        self._closing = True
        atexit.unregister(self.close)
        if not self.failed:
            # When it is full, the thread looks at `_closing` once it is empty.
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)
        self._thread.join(timeout=_CLOSING_TIME)
        if self._thread.is_alive():
            logger.warning("The eviction trace file %s lacks its end.", self.path)
        if self.dropped:
            logger.warning(
                "The eviction trace file %s lacks %d requests that came too fast.",
                self.path,
                self.dropped,
            )

    # ---- On the thread. ----

    def _run(self) -> None:
        try:
            with RecordFile(self.path, self._max_bytes) as file:
                while self._take(file):
                    self._write(file, everything=self._is_late())
                    file.flush()
                self._write(file, everything=True)
        except Exception as error:
            self.failed = True
            self._waiting.clear()
            while not self._queue.empty():
                self._queue.get_nowait()
            logger.warning(
                "The eviction trace file %s ends here: %s. Serving goes on.",
                self.path,
                error,
            )

    def _take(self, file: RecordFile) -> bool:
        """Move one record from the queue to the heap; False at the end."""
        try:
            record = self._queue.get(timeout=_NAP)
        except queue.Empty:
            return not self._closing
        if record is None:
            return False
        self._oldest_open = record.oldest_open
        ids = self._ids(record)
        self._blocks_out += len(record.hashes)
        self._waiting_blocks += len(ids)
        heapq.heappush(
            self._waiting,
            _Waiting(
                record.serial,
                record.arrival,
                record.input_length,
                record.output_length,
                ids,
            ),
        )
        return True

    def _is_late(self) -> bool:
        """Whether lines have waited for too long for a request that goes on."""
        if not self._waiting:
            self._last_write = time.monotonic()
        return time.monotonic() - self._last_write > self._max_wait

    def _write(self, file: RecordFile, everything: bool) -> None:
        while self._waiting and (
            everything
            or self._waiting[0].serial < self._oldest_open
            or len(self._waiting) > self._max_pending
            or self._waiting_blocks > MAX_PENDING_BLOCKS
        ):
            entry = heapq.heappop(self._waiting)
            self._waiting_blocks -= len(entry.ids)
            file.write(self._line(entry))
            self._last_write = time.monotonic()

    def _line(self, entry: _Waiting) -> bytes:
        if self._start is None:
            self._start = entry.arrival
        return json.dumps(
            {
                "timestamp": round(max(0.0, entry.arrival - self._start), 6),
                "input_length": entry.input_length,
                "output_length": entry.output_length,
                "hash_ids": entry.ids.tolist(),
                "block_size": self._block_size,
            },
            separators=(",", ":"),
        ).encode()

    def _ids(self, record: Record) -> "array[int]":
        ids = array("Q")
        for first in range(0, len(record.hashes), _HASHED_AT_ONCE):
            if first:
                time.sleep(1e-4)
            chunk = record.hashes[first : first + _HASHED_AT_ONCE]
            ids.extend(self._id(block) for block in chunk)
        if record.has_tail:
            ids.append(self._id(b"tail" + record.serial.to_bytes(8, "little")))
        return ids

    def _id(self, data: bytes) -> int:
        digest = hashlib.blake2b(data, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little") >> 11
