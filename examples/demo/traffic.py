# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Real traffic, made small enough for a laptop without changing what recurs.

The Mooncake conversation trace gives for each request its length and the ids of its
512-token blocks; two requests share an id where they share a prompt up to there. It
is made smaller in two ways, and neither changes which blocks come back, in what
order, at what distance in time:

- every length is divided by 128: of the trace's blocks each eighth is kept, and
  becomes one block of 32 tokens, the smallest that CPU attention takes;
- of the conversations each n-th is kept, whole. With a pool that is smaller by the
  same factor, hit rates stay what they are on the full trace.

Prompts are token ids drawn from the block id, so equal blocks get equal tokens.
"""

import io
import itertools
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 32  # tokens of a block in the demonstration
TRACE_BLOCK = 512  # tokens of a block in the trace
STRIDE = 8  # of so many blocks in the trace one is kept
SCALE = TRACE_BLOCK * STRIDE // BLOCK  # lengths are divided by this


@dataclass(frozen=True)
class Load:
    """A part of the traffic that is replayed against a pool.

    Attributes:
        name: What the table calls it.
        every: Of the conversations, in order of their first request, one in so
            many is kept.
        minutes: Of the trace, from its beginning.
    """

    name: str
    every: int
    minutes: float


@dataclass(frozen=True)
class Prompt:
    """A request to replay: ids of its full blocks, and tokens after the last."""

    blocks: tuple[int, ...]
    tail: int

    def token_ids(self, load: str, serial: int, vocabulary: int) -> list[int]:
        """Tokens: the same for a block wherever it stands, the tail's never again.

        Args:
            load: Two loads share no tokens, so that neither profits from the other.
            serial: Of the request within its load.
            vocabulary: Size of the model's vocabulary. Its lower end, where special
                tokens are, is left out.
        """
        low = min(1000, vocabulary // 2)
        tokens: list[int] = []
        for block in self.blocks:
            draw = random.Random(f"{load}/block/{block}")
            tokens += (draw.randrange(low, vocabulary) for _ in range(BLOCK))
        draw = random.Random(f"{load}/tail/{serial}")
        return tokens + [draw.randrange(low, vocabulary) for _ in range(self.tail)]


def read_trace(path: Path) -> Iterator[dict[str, Any]]:
    """Requests of a trace in Mooncake's format, in order of arrival.

    Args:
        path: ``.jsonl`` or ``.jsonl.zst``.
    """
    if path.suffix == ".zst":
        import zstandard

        with path.open("rb") as file:
            stream = zstandard.ZstdDecompressor().stream_reader(file)
            yield from map(json.loads, io.TextIOWrapper(stream, encoding="utf-8"))
    else:
        with path.open() as text:
            yield from map(json.loads, text)


def conversation_of(row: dict[str, Any]) -> int:
    """What tells conversations apart: the first block after the system prompt.

    Every request of the trace begins with the same block.
    """
    ids = row["hash_ids"]
    return ids[1] if len(ids) > 1 else ids[0]


def take(rows: Iterable[dict[str, Any]], load: Load) -> list[Prompt]:
    """The requests of a load, scaled.

    Args:
        rows: A trace, in order of arrival; ``timestamp`` in ms.
        load: Which part of it.

    Returns:
        Prompts in order of arrival.
    """
    order: dict[int, int] = {}
    prompts = []
    in_time = itertools.takewhile(
        lambda row: row["timestamp"] < load.minutes * 60_000, rows
    )
    for row in in_time:
        number = order.setdefault(conversation_of(row), len(order))
        if number % load.every:
            continue
        tokens = max(1, row["input_length"] // SCALE)
        # The last token is always computed, so a block at the very end could not hit.
        full = (tokens - 1) // BLOCK
        blocks = tuple(row["hash_ids"][STRIDE - 1 :: STRIDE][:full])
        prompts.append(Prompt(blocks, tokens - full * BLOCK))
    return prompts
