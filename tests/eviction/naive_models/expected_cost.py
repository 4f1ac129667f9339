# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of AsymCache's score."""

import math

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots


class NaiveAsymCache(NaiveModel):
    """arXiv 2606.02964: uses, less with age, times the cost.

    Args:
        num_slots: Capacity.
        half_life: Accesses that halve the probability of a use, as a multiple of the
            capacity.

    """

    name = "asymcache"

    def __init__(self, num_slots: int, half_life: float = 1.0):
        self.half_life = half_life * num_slots
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.order: list[int] = []  # of release
        self.uses: dict[int, int] = {}
        self.used: dict[int, int] = {}  # when, by the clock
        self.hit: set[int] = set()  # used since they were queued
        self.score: dict[int, float] = {}
        self.clock = 0

    def insert(self, slot: int, key: int) -> None:
        self._count(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            self.used[slot] = self.clock
        cost = round(256 * self.cost.get(slot, 1.0))
        worth = math.log2(self.uses[slot] * cost)
        self.score[slot] = worth + self.used[slot] / self.half_life
        self.order.append(slot)

    def take(self, slot: int) -> None:
        self.order.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.order:
            self.order.remove(slot)
        self.uses.pop(slot, None)
        self.hit.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.clock += len(keys)
        for slot in slots:
            if slot is not None:
                self._count(slot)

    def victim(self) -> int | None:
        if not self.order:
            return None
        slot = min(self.order, key=self.score.__getitem__)  # the first of equals
        self.forget(slot)
        return slot

    def _count(self, slot: int) -> None:
        self.uses[slot] = min(1023, self.uses.get(slot, 0) + 1)
        self.hit.add(slot)
