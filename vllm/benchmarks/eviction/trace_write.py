# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Writes a trace in the form of our own recordings."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm.benchmarks.eviction.trace import Trace


def write_recording(trace: Trace, path: str | Path) -> None:
    """Write a recording; block ids are numbered by their first use.

    Args:
        trace: Requests.
        path: `.gz` and `.zst` compress.

    Raises:
        OSError: The file cannot be written.

    """
    path = Path(path)
    with path.open("wb") as raw:
        out: Any = raw
        if path.suffix == ".gz":
            out = gzip.GzipFile(fileobj=raw, mode="wb")
        elif path.suffix == ".zst":
            import zstandard

            out = zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
        for line in _lines(trace):
            out.write(line)
        if out is not raw:
            out.close()


def _lines(trace: Trace) -> Iterator[bytes]:
    numbers: dict[int, int] = {}
    tails = 1 << 52  # a partial block's id is never the same twice
    for i, blocks in enumerate(trace.prompt_blocks.tolist()):
        first = int(trace.offsets[i])
        keys = trace.keys[first : first + blocks].tolist()
        ids = [numbers.setdefault(key, len(numbers)) for key in keys]
        if int(trace.prompt_tokens[i]) % trace.block_size:
            ids.append(tails + i)
        line = {
            "timestamp": round(float(trace.arrivals[i]), 6),
            "input_length": int(trace.prompt_tokens[i]),
            "output_length": int(trace.output_tokens[i]),
            "hash_ids": ids,
            "block_size": trace.block_size,
        }
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"
