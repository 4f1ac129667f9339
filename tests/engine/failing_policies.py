# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Policies with a bug that shows in the middle of serving.

Each works like `Fifo` until it has been asked for `GOOD_CALLS` times, so that the
pool is full of content and requests are running when it fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval

from vllm.v1.core.eviction.policy import BlockInfo, Fifo

GOOD_CALLS = 40


@dataclass
class PatienceConfig:
    """Parameters of all of them."""

    good_calls: Annotated[int, Interval(ge=0)] = GOOD_CALLS
    """Calls that are answered properly."""


class _Patient(Fifo):
    Config = PatienceConfig
    summary = "fails after a while"

    def __init__(self, num_slots: int, config: PatienceConfig):
        super().__init__(num_slots, config)
        self.calls = 0

    def had_enough(self) -> bool:
        self.calls += 1
        return self.calls > self.config.good_calls


class FailsInVictim(_Patient):
    """Raises when a block has to go."""

    def victim(self) -> int:
        if self.had_enough():
            raise RuntimeError("no victim\nthis time")
        return super().victim()


class FailsInInsert(_Patient):
    """Raises when a block comes back: in the middle of a whole list of them."""

    def insert(self, slot: int, key: int, info: BlockInfo) -> None:
        if self.had_enough():
            raise KeyError(slot)
        super().insert(slot, key, info)


class FailsInAdmit(_Patient):
    """Raises when it is told what a request hits."""

    def admit(
        self, serial: int, keys: Sequence[int], slots: Sequence[Any], now: float
    ) -> None:
        if self.had_enough():
            raise ZeroDivisionError("a rate of nothing")


class NamesABlockInUse(_Patient):
    """Does not raise: it returns a block that a request is reading."""

    def __init__(self, num_slots: int, config: PatienceConfig):
        super().__init__(num_slots, config)
        self._taken: set[int] = set()

    def take(self, slot: int) -> None:
        super().take(slot)
        self._taken.add(slot)

    def reinsert(self, slot: int) -> None:
        super().reinsert(slot)
        self._taken.discard(slot)

    def forget(self, slot: int) -> None:
        super().forget(slot)
        self._taken.discard(slot)

    def victim(self) -> int:
        if self.had_enough() and self._taken:
            return min(self._taken)
        return super().victim()
