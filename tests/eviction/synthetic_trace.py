# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A stream of block keys that is the same on every machine for ever.

Whole numbers only, and a generator of its own, because the standard library's may
change. It mixes what tells policies apart: a popular set with a Zipf-like head,
loops that are longer than small caches, blocks that are used once, and returns
after a short and after a long while.
"""

from collections.abc import Iterator
from itertools import accumulate

NUM_ACCESSES = 30_000
NUM_POPULAR = 600
LOOP_LENGTH = 150


class Lcg:
    """Knuth's MMIX generator; the upper half of its state."""

    def __init__(self, seed: int):
        self._state = seed

    def below(self, bound: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 32) * bound >> 32


def synthetic_trace(num_accesses: int = NUM_ACCESSES, seed: int = 1) -> list[int]:
    """Return keys, each of one block."""
    draw = Lcg(seed)
    weights = list(accumulate(2**32 // (rank + 2) for rank in range(NUM_POPULAR)))
    once = _count_from(1_000_000)
    trace: list[int] = []
    while len(trace) < num_accesses:
        kind = draw.below(100)
        if kind < 55:
            trace.append(1 + _rank(weights, draw.below(weights[-1])))
        elif kind < 80:
            trace.append(next(once))
        elif kind < 97:  # returns: mostly of what was used just now
            window = 40 if draw.below(4) else 1_500
            back = 1 + draw.below(window)
            trace.append(trace[-back] if back <= len(trace) else next(once))
        else:
            start = 10_000 + draw.below(3) * LOOP_LENGTH
            trace.extend(range(start, start + LOOP_LENGTH // (1 + draw.below(8))))
    return trace[:num_accesses]


def _rank(cumulated: list[int], value: int) -> int:
    low, high = 0, len(cumulated) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulated[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


def _count_from(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def synthetic_requests(num_requests: int = 2_000, seed: int = 1) -> list[list[int]]:
    """Return the block keys of each request, a prefix first.

    Conversations that grow, under a few system prompts; some go on at once, some
    much later, and some requests come once.
    """
    draw = Lcg(seed)
    fresh = _count_from(1)
    systems = [[next(fresh) for _ in range(2 + draw.below(7))] for _ in range(8)]
    weights = list(accumulate(2**16 // (rank + 1) for rank in range(len(systems))))
    conversations: list[list[int]] = []
    requests = []
    for _ in range(num_requests):
        if conversations and draw.below(100) < 60:
            window = min(len(conversations), 12 if draw.below(3) else 200)
            at = len(conversations) - 1 - draw.below(window)
            path = conversations.pop(at)
        else:
            path = list(systems[_rank(weights, draw.below(weights[-1]))])
        path = path + [next(fresh) for _ in range(1 + draw.below(6))]
        conversations.append(path)
        requests.append(path)
    return requests
