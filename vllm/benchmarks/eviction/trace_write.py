# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Writes requests in the public formats and in that of our own recordings.

A line at a time, so that traffic longer than the memory can be written. Sessions are
kept where the trace has them, though the engine writes none; readers of Mooncake's
format and of recordings pass over the field.
"""

import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vllm.benchmarks.eviction.sessions import Request
from vllm.benchmarks.eviction.trace import Trace
from vllm.v1.core.eviction.registry import nearest

Runs = list[tuple[int, int]]
"""Block ids as (first, how many) of consecutive ones."""


@dataclass(frozen=True)
class Line:
    """A request to write.

    Attributes:
        arrival: Seconds.
        prompt: Tokens.
        output: Tokens.
        session: Number, or -1.
        turn: Within its session, from 0; 0 where there is no session.
        runs: Ids of the prompt's blocks, the partial last one included.
        index: Of the request, from 0.

    """

    arrival: float
    prompt: int
    output: int
    session: int
    turn: int
    runs: Runs
    index: int


def _ids(runs: Runs) -> list[int]:
    return list(chain.from_iterable(range(first, first + n) for first, n in runs))


def _recording(line: Line, block_size: int) -> dict[str, Any]:
    return {
        "timestamp": round(line.arrival, 6),
        "input_length": line.prompt,
        "output_length": line.output,
        "hash_ids": _ids(line.runs),
        "block_size": block_size,
        **_session(line),
    }


def _mooncake(line: Line, _block_size: int) -> dict[str, Any]:
    return {**_mooncake_lengths(line), "hash_ids": _ids(line.runs), **_session(line)}


def _mooncake_runs(line: Line, _block_size: int) -> dict[str, Any]:
    return {**_mooncake_lengths(line), "hash_runs": line.runs, **_session(line)}


def _mooncake_lengths(line: Line) -> dict[str, Any]:
    return {
        "timestamp": round(1000 * line.arrival),
        "input_length": line.prompt,
        "output_length": line.output,
    }


def _session(line: Line) -> dict[str, Any]:
    return {"session": line.session} if line.session >= 0 else {}


_MOST_TURNS = 1 << 20  # of a session, so that ids of its requests are its own


def _bailian(line: Line, _block_size: int) -> dict[str, Any]:
    # The format has no request without a session: one of none is one of its own. -1 is
    # nobody's parent.
    chat = (
        line.session * _MOST_TURNS + line.turn if line.session >= 0 else -2 - line.index
    )
    return {
        "chat_id": chat,
        "parent_chat_id": chat - 1 if line.turn else -1,
        "timestamp": round(line.arrival, 3),
        "input_length": line.prompt,
        "output_length": line.output,
        "type": "text",
        "turn": line.turn + 1,
        "hash_ids": _ids(line.runs),
    }


@dataclass(frozen=True)
class _Writer:
    line: Callable[[Line, int], dict[str, Any]]
    block_sizes: tuple[int, ...]  # that the format can have; empty: any


WRITERS = {
    "mooncake": _Writer(_mooncake, (16, 512)),
    "mooncake-runs": _Writer(_mooncake_runs, (16, 512)),
    "bailian": _Writer(_bailian, (16,)),
    "recording": _Writer(_recording, ()),
}
"""Formats that can be written, by the names by which they are read."""


def check_format(name: str, block_size: int | None = None) -> None:
    """Refuse a format that there is not, or that has not these blocks.

    Args:
        name: Of `WRITERS`.
        block_size: Tokens, where they are known already.

    Raises:
        ValueError: One line.

    """
    if name not in WRITERS:
        names = list(WRITERS)
        raise ValueError(
            f"Cannot write format {name!r}: choose from {', '.join(names)}."
            f"{nearest(name, names)}"
        )
    sizes = WRITERS[name].block_sizes
    if block_size is not None and sizes and block_size not in sizes:
        allowed = " or ".join(map(str, sizes))
        raise ValueError(
            f"--block-size is {block_size}: blocks of format {name} have {allowed} "
            "tokens; format recording takes any."
        )


def write_lines(
    lines: Iterable[Line], path: str | Path, format: str, block_size: int
) -> int:
    """Write requests.

    Args:
        lines: In order of arrival.
        path: `.gz` and `.zst` compress; `-` is standard output.
        format: Of `WRITERS`.
        block_size: Tokens of the blocks that ids stand for.

    Returns:
        How many there were.

    Raises:
        ValueError: See `check_format`.
        OSError: The file cannot be written.

    """
    check_format(format, block_size)
    make = WRITERS[format].line
    count = 0
    with _opened(path) as out:
        for line in lines:
            text = json.dumps(make(line, block_size), separators=(",", ":"))
            out.write(text.encode() + b"\n")
            count += 1
    return count


def lines_of_requests(requests: Iterable[Request], block_size: int) -> Iterator[Line]:
    """Drawn requests, whose blocks have numbers."""
    for index, each in enumerate(requests):
        yield Line(
            each.arrival,
            each.prompt_tokens,
            each.output_tokens,
            each.session.number,
            each.turn,
            each.runs(block_size),
            index,
        )


def lines_of_trace(trace: Trace) -> Iterator[Line]:
    """Requests of a trace; its blocks are numbered by their first use."""
    numbers: dict[int, int] = {}
    turns: dict[int, int] = {}
    tails = 1 << 52  # a partial block's id is never the same twice
    for i, blocks in enumerate(trace.prompt_blocks.tolist()):
        first = int(trace.offsets[i])
        keys = trace.keys[first : first + blocks].tolist()
        runs = _as_runs([numbers.setdefault(key, len(numbers)) for key in keys])
        prompt = int(trace.prompt_tokens[i])
        if prompt % trace.block_size:
            runs.append((tails + i, 1))
        session = int(trace.sessions[i])
        turn = turns.get(session, 0) if session >= 0 else 0
        turns[session] = turn + 1
        arrival, output = float(trace.arrivals[i]), int(trace.output_tokens[i])
        yield Line(arrival, prompt, output, session, turn, runs, i)


def _as_runs(ids: list[int]) -> Runs:
    runs: Runs = []
    for each in ids:
        if runs and each == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((each, 1))
    return runs


def write_recording(trace: Trace, path: str | Path) -> None:
    """Write a trace as a recording.

    Args:
        trace: Requests.
        path: `.gz` and `.zst` compress.

    Raises:
        OSError: The file cannot be written.

    """
    write_lines(lines_of_trace(trace), path, "recording", trace.block_size)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="wb") as packed:
                yield packed
        elif path.suffix == ".zst":
            import zstandard

            compressor = zstandard.ZstdCompressor()
            with compressor.stream_writer(raw, closefd=False) as packed:
                yield packed
        else:
            yield raw
