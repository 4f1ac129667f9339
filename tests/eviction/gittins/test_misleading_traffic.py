# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`gittins` under traffic that is made to mislead it."""

import numpy as np
import pytest

from vllm.benchmarks.eviction.replay import Candidate, Result, replay
from vllm.benchmarks.eviction.trace import Trace

BLOCK = 16


class Keys:
    """Names that were not used before."""

    def __init__(self) -> None:
        self._next = 1

    def new(self, number: int) -> list[int]:
        self._next += number
        return list(range(self._next - number, self._next))


def trace_of(requests: list[tuple[float, list[int]]]) -> Trace:
    lengths = [len(keys) for _, keys in requests]
    return Trace(
        BLOCK,
        np.array([time for time, _ in requests], np.float64),
        np.array([BLOCK * length for length in lengths], np.uint32),
        np.full(len(requests), 10, np.uint32),
        np.cumsum([0, *lengths]).astype(np.uint64),
        np.concatenate([np.array(keys, np.uint64) for _, keys in requests]),
        np.arange(len(requests)),
    )


def traffic(kind: str) -> Trace:
    keys = Keys()
    random = np.random.default_rng(1)
    prefixes = [keys.new(20) for _ in range(30)]

    def popular() -> list[int]:
        return prefixes[random.integers(30)] + keys.new(10)

    steps = range(2000)
    if kind == "every request unique":
        return trace_of([(i / 2, keys.new(30)) for i in steps])
    if kind == "one prefix for ever":
        return trace_of([(i / 2, prefixes[0] + keys.new(10)) for i in steps])
    if kind == "bursts":
        return trace_of([(60.0 * (i // 50), popular()) for i in steps])
    if kind == "clock jumps":
        return trace_of([(i / 2 + 1e5 * (i // 500), popular()) for i in steps])
    return trace_of(
        [(i / 2, popular() if i % 10 == 0 else keys.new(20)) for i in steps]
    )


def under(policy: str, trace: Trace) -> Result:
    return replay(trace, 1000, Candidate(policy))


@pytest.mark.parametrize(
    "kind",
    [
        "every request unique",
        "one prefix for ever",
        "bursts",
        "clock jumps",
        "many one-hit requests",
    ],
)
def test_never_more_than_a_point_below_lru(kind: str):
    trace = traffic(kind)
    assert under("gittins", trace).hit_rate >= under("lru", trace).hit_rate - 0.01


def test_the_same_events_give_the_same_hits():
    trace = traffic("bursts")
    first, second = under("gittins", trace), under("gittins", trace)
    assert (first.hit_blocks, first.evictions) == (second.hit_blocks, second.evictions)
