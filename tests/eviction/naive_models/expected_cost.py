# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of AsymCache's score."""

import math

from tests.eviction.naive_models.base import Keys, Slots
from tests.eviction.naive_models.frequency import NaiveLfu


class NaiveAsymCache(NaiveLfu):
    """arXiv 2606.02964: uses, less with age, times the cost.

    Args:
        num_slots: Capacity.
        half_life: Accesses that halve the probability of a use, as a multiple of the
            capacity.

    """

    name = "asymcache"

    def __init__(self, num_slots: int, half_life: float = 1.0):
        self.half_life = half_life * num_slots
        super().__init__(num_slots, ageing=False)

    def clear(self) -> None:
        super().clear()
        self.clock = 0

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.clock += len(keys)
        super().admit(serial, keys, slots, now)

    def _worth(self, slot: int) -> float:
        cost = round(256 * self.cost.get(slot, 1.0))
        return math.log2(self.uses[slot] * cost) + self.clock / self.half_life
