# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The parts of `gittins` once more, plainly: what the C++ is held against."""

import math

NUM_BUCKETS = 28
EDGES = [0.0, *(0.1 * 1.5 ** (i - 1) for i in range(1, NUM_BUCKETS))]
"""Seconds; the last bucket is open."""


def length(bucket: int) -> float:
    last = bucket == NUM_BUCKETS - 1
    return 2 * EDGES[bucket] if last else EDGES[bucket + 1] - EDGES[bucket]


def log_middle(bucket: int) -> float:
    low = max(0.05, EDGES[bucket])
    high = 1.5 * low if bucket == NUM_BUCKETS - 1 else EDGES[bucket + 1]
    return (math.log(low) + math.log(high)) / 2


class Weight:
    """Of a logistic regression, learnt by AdaGrad."""

    def __init__(self, value: float = 0.0):
        self.value = value
        self.squares = 0.0

    def step(self, gradient: float, rate: float) -> None:
        self.squares += gradient**2
        self.value -= rate * gradient / math.sqrt(1 + self.squares)


class NaiveHazard:
    """A weight for whatever a hazard depends on, by its name."""

    def __init__(self) -> None:
        self.weights: dict[tuple[object, ...], Weight] = {}

    def _names(
        self, values: list[int], log_gap: float | None, shared: bool, bucket: int
    ) -> list[tuple[tuple[object, ...], float]]:
        """With the rate at which each learns."""
        names: list[tuple[tuple[object, ...], float]] = [(("age", bucket), 0.1)]
        for feature, value in enumerate(values):
            if value >= 0:
                names.append((("is", feature, value), 0.1))
                names.append((("then", feature, value, bucket // 7), 0.05))
        if log_gap is not None:
            step = math.floor((log_middle(bucket) - log_gap) / 0.35) + 9
            names.append((("pace", min(max(step, 0), 19), shared), 0.1))
        return names

    def _weight(self, name: tuple[object, ...]) -> Weight:
        if name not in self.weights:
            self.weights[name] = Weight(math.log(1 / 9) if name[0] == "age" else 0.0)
        return self.weights[name]

    def hazard(
        self, values: list[int], log_gap: float | None, shared: bool, bucket: int
    ) -> float:
        names = self._names(values, log_gap, shared, bucket)
        total = sum(self._weight(name).value for name, _ in names)
        return 1 / (1 + math.exp(-total))

    def learn(
        self,
        values: list[int],
        log_gap: float | None,
        shared: bool,
        bucket: int,
        returned: bool,
        weight: float,
    ) -> None:
        chance = self.hazard(values, log_gap, shared, bucket)
        for name, rate in self._names(values, log_gap, shared, bucket):
            self._weight(name).step((chance - returned) * weight, rate)


def naive_index(hazards: list[float], start: int) -> float:
    """The best of all times to give up, each worked out from the beginning."""
    best = 0.0
    for stop in range(start, NUM_BUCKETS):
        stays, returns, held = 1.0, 0.0, 0.0
        for bucket in range(start, stop + 1):
            returns += stays * hazards[bucket]
            held += stays * length(bucket) * (1 - hazards[bucket] / 2)
            stays *= 1 - hazards[bucket]
        best = max(best, returns / held)
    return best
