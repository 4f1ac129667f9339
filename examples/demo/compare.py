# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Can these two runs be told apart, or was the slice too short?

Both policies answered the same requests, so the runs are compared request by request:
a paired bootstrap draws requests with replacement, the same ones for both, and takes
the difference anew. Requests that follow each other are alike (a burst of one
conversation, a large prompt that empties the pool), so whole runs of consecutive
requests are drawn. If the middle 95 % of the differences lie on one side of zero, the
policies are told apart on traffic like this slice; else the slice is too short. Below a
hundred requests it always is: there the bootstrap itself cannot be trusted.

Times have a control besides. A policy changes a request's time only by what it finds
in the cache, so where both servers found the same, their times must be alike. If they
can be told apart there too, something else is the reason, and the times say nothing
about the policies. The servers run side by side and take turns (replay.py) so that
this is rare.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from replay import Answer

#: From rows as ``arrays`` makes them, or a stack of such, to a value or an array.
Statistic = Callable[[np.ndarray], Any]

RESAMPLES = 2000
RUN = 20  # consecutive requests that are drawn together
CONFIDENCE = 0.95
MIN_REQUESTS = 100


@dataclass(frozen=True)
class Difference:
    """Second minus first, with the interval that the bootstrap gives."""

    value: float
    low: float
    high: float
    requests: int

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside of the interval."""
        return self.low > 0 or self.high < 0

    @property
    def told_apart(self) -> bool:
        """Whether zero is outside of an interval that can be trusted."""
        return self.requests >= MIN_REQUESTS and self.excludes_zero


def arrays(answers: list[Answer]) -> np.ndarray:
    """Answers as rows of (ttft, prompt tokens, cached tokens)."""
    return np.array([(a.ttft, a.prompt_tokens, a.cached_tokens) for a in answers])


def hit_rate(rows: np.ndarray) -> Any:
    """Share of the prompt tokens that were cached."""
    return rows[..., 2].sum(-1) / rows[..., 1].sum(-1)


def ttft(quantile: float) -> Statistic:
    """A statistic: the quantile of the time to first token, in seconds."""
    return lambda rows: np.quantile(rows[..., 0], quantile, axis=-1)


def difference(
    first: list[Answer], second: list[Answer], statistic: Statistic
) -> Difference:
    """How much a statistic differs between two runs over the same requests.

    Args:
        first: Answers of one policy.
        second: Answers of the other to the same requests, in the same order.
        statistic: Of rows as ``arrays`` makes them.

    Raises:
        ValueError: The runs have not the same length, or no requests.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"runs of {len(first)} and {len(second)} requests")
    one, two = arrays(first), arrays(second)
    length = max(1, min(RUN, len(one) // 5))
    random = np.random.default_rng(0)
    starts = random.integers(
        0, len(one) - length + 1, (RESAMPLES, -(-len(one) // length), 1)
    )
    picked = (starts + np.arange(length)).reshape(RESAMPLES, -1)[:, : len(one)]
    draws = statistic(two[picked]) - statistic(one[picked])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    value = float(statistic(two) - statistic(one))
    return Difference(value, float(low), float(high), len(one))


def control(
    first: list[Answer], second: list[Answer], statistic: Statistic
) -> Difference | None:
    """The difference over the requests for which both found the same in the cache.

    Args:
        first: Answers of one policy.
        second: Answers of the other to the same requests, in the same order.
        statistic: Of times.

    Returns:
        The difference, None where there is no such request.
    """
    alike = [
        (one, two)
        for one, two in zip(first, second, strict=True)
        if one.cached_tokens == two.cached_tokens
    ]
    if not alike:
        return None
    return difference([one for one, _ in alike], [two for _, two in alike], statistic)
