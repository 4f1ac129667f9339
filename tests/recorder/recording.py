# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Makes records for a recorder and reads back what it wrote."""

import gzip
import json
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import zstandard

from vllm.v1.core.eviction.recorder import Record, Recorder

BLOCK_SIZE = 16


def hashes_of(*contents: int) -> list[bytes]:
    """Block hashes of a prompt whose blocks hold these contents: each depends on
    all before it, as the engine's do."""
    hashes = []
    parent = b""
    for content in contents:
        parent = sha256(parent + content.to_bytes(4, "little")).digest()
        hashes.append(parent)
    return hashes


def record_of(
    serial: int,
    contents: Iterable[int] = (),
    *,
    tail: int = 0,
    arrival: float | None = None,
    output: int = 1,
    oldest_open: int | None = None,
) -> Record:
    """The record of a request.

    Args:
        serial: Of its admission.
        contents: One of each full block.
        tail: Tokens of the partial block at its end.
        arrival: Seconds; the serial when it does not matter.
        output: Tokens.
        oldest_open: By default all that were admitted before have ended.

    """
    hashes = hashes_of(*contents)
    return Record(
        serial=serial,
        arrival=float(serial) if arrival is None else arrival,
        input_length=len(hashes) * BLOCK_SIZE + tail,
        output_length=output,
        hashes=hashes,
        has_tail=tail > 0,
        oldest_open=serial + 1 if oldest_open is None else oldest_open,
    )


def record_all(path: Path, records: Iterable[Record], **options: Any) -> Recorder:
    """Record all of them and close."""
    recorder = Recorder(str(path), BLOCK_SIZE, **options)
    for record in records:
        recorder.finished(record)
    recorder.close()
    return recorder


def read(path: Path) -> list[dict[str, Any]]:
    """The requests of a file, which must be sound to its end."""
    if path.suffix == ".gz":
        data = gzip.decompress(path.read_bytes())
    elif path.suffix == ".zst":
        decompressor = zstandard.ZstdDecompressor()
        with decompressor.stream_reader(
            path.read_bytes(), read_across_frames=True
        ) as reader:
            data = reader.read()
    else:
        data = path.read_bytes()
    assert data.endswith(b"\n") or not data
    return [json.loads(line) for line in data.splitlines()]


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something becomes true; waits no longer than it takes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return holds()
