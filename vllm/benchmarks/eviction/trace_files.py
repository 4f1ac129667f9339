# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""From lines of block ids to the names of a request's blocks.

    hash_ids        an id for each block of the prompt, the last one maybe partial;
                    equal ids mean equal prefixes
    hash_runs       the same as [first id, how many] of consecutive ids

An id can be read as several smaller blocks: those of one id are always used together,
but how much of a partial block was used, and which blocks an end of a request leaves,
is then seen in finer grain. Lines are read one by one; `.gz` and `.zst` are unpacked
on the way.

What the model answered is not in such a trace, although the next request of the
conversation repeats it under ids of its own. The blocks of an answer get names that
no one asks for: they take room, as they do in an engine.
"""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

_ANSWERS = np.uint64(1) << np.uint64(62)  # where the numbers of answers' blocks begin
_MAX_ANSWER_BLOCKS = np.uint64(1) << np.uint64(24)
_MOST_TOKENS = (1 << 32) - 1  # of prompt and answer, which a trace counts in 32 bits
_MOST_IDS = 1 << 24  # of a run


def lengths_of(prompt: Any, output: Any) -> tuple[int, int]:
    """Tokens in and out, neither negative."""
    if int(prompt) < 0 or int(output) < 0:
        raise ValueError(f"lengths are {prompt} and {output}: must not be negative.")
    if int(prompt) + int(output) > _MOST_TOKENS:
        raise ValueError(
            f"lengths are {prompt} and {output}: must be {_MOST_TOKENS:,} tokens "
            "together at most."
        )
    return int(prompt), int(output)


def ids_of(request: dict[str, Any]) -> NDArray[np.uint64]:
    """Block ids, written out or as runs."""
    if "hash_runs" in request:
        runs = []
        for first, n in request["hash_runs"]:
            if not 0 <= n <= _MOST_IDS:
                raise ValueError(
                    f"a run has {n:,} block ids: must be 0 to {_MOST_IDS:,}."
                )
            runs.append(np.arange(first, first + n))
        ids = np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    else:
        ids = np.array(request["hash_ids"])
    if len(ids) and (ids.ndim > 1 or ids.dtype != np.int64):
        raise ValueError("block ids must be whole numbers, less than 2^63.")
    if len(ids) and ids.min() < 0:
        raise ValueError(f"block id {ids.min()} is negative.")
    return ids.astype(np.uint64)


def block_keys(
    row: tuple[float, int, int, int],
    ids: NDArray[np.uint64],
    index: int,
    tokens_per_id: int,
    block_size: int,
) -> NDArray[np.uint64]:
    """Keys of the full blocks of prompt and answer."""
    _, prompt, output, _ = row
    prompt_blocks = prompt // block_size
    blocks = max(prompt_blocks, (prompt + max(output, 1) - 1) // block_size)
    if blocks - prompt_blocks > _MAX_ANSWER_BLOCKS:
        raise ValueError(f"an answer has {output:,} tokens: too many.")
    each = tokens_per_id // block_size
    if len(ids) * each < prompt_blocks:
        raise ValueError(f"{len(ids)} block ids do not cover {prompt} tokens.")
    children = ids[:, None] * np.uint64(each) + np.arange(each, dtype=np.uint64)
    numbers = np.empty(blocks, dtype=np.uint64)
    numbers[:prompt_blocks] = children.ravel()[:prompt_blocks]
    numbers[prompt_blocks:] = (
        _ANSWERS
        + np.uint64(index) * _MAX_ANSWER_BLOCKS
        + np.arange(blocks - prompt_blocks, dtype=np.uint64)
    )
    return _mixed(numbers)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread over 64 bits, one to one: a policy's key is a hash."""
    keys = numbers + np.uint64(1)
    keys *= np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(32)
    keys *= np.uint64(0xD6E8FEB86659FD93)
    keys ^= keys >> np.uint64(29)
    return keys


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers and text of the lines that are not empty."""
    with path.open("rb") as file:
        if path.suffix == ".zst":
            decompressor = zstandard.ZstdDecompressor()
            # A recording is a frame of every few seconds.
            stream: Any = decompressor.stream_reader(file, read_across_frames=True)
        elif path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=file)
        else:
            stream = file
        for number, line in enumerate(io.TextIOWrapper(stream, "utf-8", "replace"), 1):
            if line.strip():
                yield number, line
