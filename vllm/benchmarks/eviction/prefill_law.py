# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How long prefill takes, as a law of four numbers, fitted to what was measured.

    seconds = request + step * steps + token * tokens + look * (tokens looked at)

A token looks at all tokens before it, in layers with a sliding window at those within;
`looks` adds that up, as the mean over the layers. Of a request, what it costs by itself
is kept apart from what a step does: who fills a hole pays for a step more and not for a
request. That needs prompts of several steps; where there are none the two are one, and
count as the step's.

The sum of squares of *relative* errors is made least, because a clock's noise grows
with what is measured and short prompts are what tells a step's cost. No number is
negative: of all choices of which are zero the best is taken, which is exact for so few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vllm.v1.core.eviction.model_flops import Flops


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        depth: Tokens that were cached.
        tokens: Computed behind them.
        steps: Of prefill.
        seconds: To the first token of the answer.

    """

    depth: int
    tokens: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Attention:
    """Where the layers look.

    Attributes:
        full: Share of the layers that look at all tokens before.
        window: Tokens that the others look at, at most.

    """

    full: float = 1.0
    window: int = 0

    def looks(self, depth: int, tokens: int) -> float:
        """Tokens that `tokens` look at behind `depth`, summed; of the mean layer."""
        before = np.arange(depth, depth + tokens, dtype=np.float64)
        within = np.minimum(before, self.window)
        return float((self.full * before + (1.0 - self.full) * within).sum())


def attention_of(flops: Flops) -> Attention:
    """Of a model whose operations are counted."""
    each = flops.per_depth + flops.per_window_depth
    return Attention(flops.per_depth / each, flops.window) if each else Attention()


@dataclass(frozen=True)
class Law:
    """What was fitted, seconds.

    Attributes:
        request: Each by itself.
        step: Each by itself.
        token: Each by itself.
        look: For each token looked at.
        attention: Of the model.

    """

    request: float
    step: float
    token: float
    look: float
    attention: Attention = Attention()

    def seconds(self, depth: int, tokens: int, steps: int) -> float:
        """How long a prompt takes."""
        looks = self.attention.looks(depth, tokens)
        return (
            self.request + self.step * steps + self.token * tokens + self.look * looks
        )

    @property
    def per_token(self) -> float:
        """Of depth, in units of a token at depth zero."""
        return self.look / self.token * self.attention.full

    @property
    def per_window_token(self) -> float:
        """The same as far as the window reaches."""
        return self.look / self.token * (1.0 - self.attention.full)


def fit(points: Sequence[Point], attention: Attention) -> Law:
    """Fit the law.

    Args:
        points: Of several depths and lengths.
        attention: Of the model.

    Raises:
        ValueError: They do not tell what a token costs; one line.

    """
    measured = np.array([point.seconds for point in points])
    columns = np.array(
        [
            [1.0, each.steps, each.tokens, attention.looks(each.depth, each.tokens)]
            for each in points
        ]
    ).reshape(-1, 4)
    if len({each.steps for each in points}) < 2:
        columns[:, 0] = 0.0
    request, step, token, look = _non_negative(columns / measured[:, None])
    if token <= 0.0:
        raise ValueError(
            "what was measured does not grow with the number of tokens: the prompts "
            "are too short for this device, a longer --max-model-len helps."
        )
    return Law(request, step, token, look, attention)


def _non_negative(columns: NDArray[np.float64]) -> list[float]:
    """Non-negative factors with which the columns sum up to one best."""
    scale = np.linalg.norm(columns, axis=0)
    scale[scale == 0.0] = 1.0
    scaled = columns / scale
    ones = np.ones(len(columns))
    count = columns.shape[1]
    best = np.zeros(count)
    least = np.inf
    for size in range(count, 0, -1):
        for chosen in map(list, combinations(range(count), size)):
            some, *_ = np.linalg.lstsq(scaled[:, chosen], ones, rcond=None)
            error = float(np.square(scaled[:, chosen] @ some - ones).sum())
            if (some >= 0.0).all() and error < least:
                least, best = error, np.zeros(count)
                best[chosen] = some
    return [float(factor) for factor in best / scale]
