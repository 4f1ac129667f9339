# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Measures what prefill costs an engine, against depth and length.

A prompt of `depth` tokens is cached, and one that begins with it and has `tokens` more
is asked for, alone on the engine, to its first token. All lengths are measured in turn
and then again, so that a device that slows down does so for all alike; the first time
does not count. The median is kept.
"""

from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from vllm.benchmarks.eviction.prefill_law import Law, Point

_DEPTHS = (0, 1, 2, 3)  # quarters of the longest prompt
_HALVINGS = 8  # lengths: the longest prompt, half of it...


class Prefill(Protocol):
    """An engine, and nothing else running on it.

    Attributes:
        block_size: Tokens.
        longest: Tokens that a prompt may have.
        budget: Tokens that a step of prefill computes at most.
        vocabulary: Number of tokens to draw from.

    """

    block_size: int
    longest: int
    budget: int
    vocabulary: int

    def ask(self, tokens: NDArray[np.int32]) -> tuple[float, int]:
        """Serve a prompt.

        Returns:
            Seconds to the first token, and how many tokens were found cached.

        """


@dataclass(frozen=True)
class Sample:
    """One prompt to measure.

    Attributes:
        depth: Tokens that are cached before.
        tokens: That come behind them.

    """

    depth: int
    tokens: int


def samples(longest: int, block_size: int) -> list[Sample]:
    """What to measure: a handful of depths, and lengths that fit behind them.

    Raises:
        ValueError: Prompts are too short to tell anything; one line.

    """
    blocks = longest // block_size
    if blocks < len(_DEPTHS):
        raise ValueError(
            f"a prompt has {longest:,} tokens at most, fewer than {len(_DEPTHS)} "
            f"blocks of {block_size:,}: too few to measure. Raise --max-model-len, or "
            "the memory for the KV cache."
        )
    depths = [blocks * quarter // len(_DEPTHS) for quarter in _DEPTHS]
    lengths = sorted({max(1, blocks >> i) for i in range(_HALVINGS)})
    return [
        Sample(depth * block_size, length * block_size)
        for depth in depths
        for length in lengths
        if depth + length <= blocks
    ]


def measure(engine: Prefill, repeats: int) -> list[Point]:
    """Measure all samples.

    Args:
        engine: Idle.
        repeats: How often each counts.

    Returns:
        A point for each depth that was found cached and each number of tokens that
        was computed. An engine may find less than it could, and then these are not
        those of the samples.

    Raises:
        ValueError: See `samples`.

    """
    asked = samples(engine.longest, engine.block_size)
    draw = np.random.default_rng(0)
    low = min(1000, engine.vocabulary // 2)  # the first ones are often special

    def drawn(tokens: int) -> NDArray[np.int32]:
        return draw.integers(low, engine.vocabulary, tokens, dtype=np.int32)

    prefix = drawn(max(sample.depth for sample in asked))
    seconds: dict[tuple[int, int], list[float]] = {}
    rounds = repeats + 1
    total = rounds * len(asked)
    with tqdm(total=total, desc="calibrate", unit="prompt", disable=None) as progress:
        for i in range(rounds):
            depth = 0
            for sample in asked:
                if sample.depth != depth:
                    depth = sample.depth
                    engine.ask(prefix[:depth])
                prompt = np.concatenate([prefix[:depth], drawn(sample.tokens)])
                taken, cached = engine.ask(prompt)
                if i > 0:
                    key = (cached, len(prompt) - cached)
                    seconds.setdefault(key, []).append(taken)
                progress.update()
    return [
        Point(depth, tokens, -(-tokens // engine.budget), median(times))
        for (depth, tokens), times in sorted(seconds.items())
    ]


def compared(points: list[Point], law: Law) -> list[dict[str, float]]:
    """Rows of a table, measured against fitted."""
    rows: list[dict[str, float]] = []
    for point in points:
        fitted = law.seconds(point.depth, point.tokens, point.steps)
        rows.append(
            {
                "depth": point.depth,
                "tokens": point.tokens,
                "steps": point.steps,
                "measured_ms": 1000 * point.seconds,
                "fitted_ms": 1000 * fitted,
                "error_percent": 100 * (fitted / point.seconds - 1),
            }
        )
    return rows
