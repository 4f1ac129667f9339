# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Models of the policies that count uses: LFU, GDSF, and the base of AsymCache's."""

from typing import ClassVar

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots


class NaiveLfu(NaiveModel):
    """Rank: uses, plus the age of the cache at the last of them if it ages.

    Args:
        num_slots: Capacity.
        ageing: LFU-DA rather than plain LFU.

    """

    name = "lfu"
    MOST_USES: ClassVar[int] = 1023

    def __init__(self, num_slots: int, ageing: bool = True):
        self.ageing = ageing
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.order: list[int] = []  # of release
        self.uses: dict[int, int] = {}
        self.rank: dict[int, float] = {}
        self.hit: set[int] = set()  # used since they were queued
        self.age: float = 0

    def insert(self, slot: int, key: int) -> None:
        self._count(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            self.rank[slot] = self.age + self._worth(slot)
        self.rank[slot] = max(self.rank[slot], self.age)
        self.order.append(slot)

    def take(self, slot: int) -> None:
        self.order.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.order:
            self.order.remove(slot)
        self.uses.pop(slot, None)
        self.rank.pop(slot, None)
        self.hit.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for slot in slots:
            if slot is not None:
                self._count(slot)

    def victim(self) -> int | None:
        if not self.order:
            return None
        slot = min(self.order, key=self.rank.__getitem__)  # the first of equals
        if self.ageing:
            self.age = self.rank[slot]
        self.forget(slot)
        return slot

    def _worth(self, slot: int) -> float:
        return self.uses[slot]

    def _count(self, slot: int) -> None:
        self.uses[slot] = min(self.MOST_USES, self.uses.get(slot, 0) + 1)
        self.hit.add(slot)


class NaiveGdsf(NaiveLfu):
    """HPL-98-69R1, for blocks of one size: each use counts as much as it costs."""

    name = "gdsf"

    def __init__(self, num_slots: int):
        super().__init__(num_slots)

    def _worth(self, slot: int) -> float:
        return self.uses[slot] * round(256 * self.cost.get(slot, 1.0))
