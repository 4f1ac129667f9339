# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of LHD, and of drawing a sample of blocks."""

from collections.abc import Callable
from typing import ClassVar

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots
from tests.eviction.naive_models.draws import split_mix_below


class NaiveSample:
    """Evictable slots; the last takes the place of one that leaves."""

    def __init__(self, samples: int, seed: int):
        self.samples = samples
        self.seed = seed
        self.draws = 0
        self.slots: list[int] = []
        self.arrived: list[int] = []  # the same, in order of arrival

    def add(self, slot: int) -> None:
        self.slots.append(slot)
        self.arrived.append(slot)

    def remove(self, slot: int) -> None:
        self.arrived.remove(slot)
        place = self.slots.index(slot)
        self.slots[place] = self.slots[-1]
        self.slots.pop()

    def lowest(self, score: Callable[[int], float]) -> int | None:
        """Of those drawn; among equals the one that arrived first."""
        drawn = self.slots
        if len(self.slots) > self.samples:
            drawn = []
            for _ in range(self.samples):
                place = split_mix_below(self.seed, self.draws, len(self.slots))
                drawn.append(self.slots[place])
                self.draws += 1
        if not drawn:
            return None
        return min(drawn, key=lambda slot: (score(slot), self.arrived.index(slot)))


class NaiveLhd(NaiveModel):
    """NSDI'18.

    Args:
        num_slots: Capacity.
        samples: Blocks that are looked at for each eviction.
        seed: Of the draws.
        libcachesim: As libcachesim's in its first million accesses, for comparisons
            only: ages in units of 1,024 accesses, and nothing learnt yet.

    """

    name = "lhd"
    AGES: ClassVar[int] = 256
    CLASSES: ClassVar[int] = 10

    def __init__(
        self,
        num_slots: int,
        samples: int = 32,
        seed: int = 0,
        libcachesim: bool = False,
    ):
        self.libcachesim = libcachesim
        self.samples = int(samples)
        self.seed = int(seed)
        self.unit = 1024 if libcachesim else max(1, num_slots // 8)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.blocks = NaiveSample(self.samples, self.seed)
        self.accessed: dict[int, int] = {}  # of known slots
        self.hit_ages: dict[int, tuple[int, int]] = {}  # at the last hit, and before
        classes, ages = range(self.CLASSES), range(self.AGES)
        self.hits = [[0.0] * self.AGES for _ in classes]
        self.evictions = [[0.0] * self.AGES for _ in classes]
        self.density = [[(c + 1) / (age + 1) for age in ages] for c in classes]
        self.clock = 0
        self.next_period = 8 * self.capacity

    def insert(self, slot: int, key: int) -> None:
        self.accessed[slot] = self.clock
        self.hit_ages[slot] = (0, self.AGES)
        self.blocks.add(slot)

    def reinsert(self, slot: int) -> None:
        self.blocks.add(slot)

    def take(self, slot: int) -> None:
        self.blocks.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.blocks.slots:
            self.blocks.remove(slot)
        self.accessed.pop(slot, None)
        self.hit_ages.pop(slot, None)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for slot in slots:
            if slot is not None and slot in self.accessed:
                age = self._age(slot)
                self.hits[self._class(slot)][age] += 1
                self.hit_ages[slot] = (age, self.hit_ages[slot][0])
                self.accessed[slot] = self.clock + len(keys)
        self.clock += len(keys)
        if self.clock >= self.next_period and not self.libcachesim:
            self._learn()

    def victim(self) -> int | None:
        slot = self.blocks.lowest(
            lambda slot: self.density[self._class(slot)][self._age(slot)]
        )
        if slot is not None:
            self.evictions[self._class(slot)][self._age(slot)] += 1
            self.forget(slot)
        return slot

    def _age(self, slot: int) -> int:
        return min(max(0, self.clock - self.accessed[slot]) // self.unit, self.AGES - 1)

    def _class(self, slot: int) -> int:
        ages = sum(self.hit_ages[slot])
        return 0 if ages >= self.AGES else self.CLASSES - 1 - ages.bit_length()

    def _learn(self) -> None:
        self.next_period = self.clock + 8 * self.capacity
        for hits, evictions, density in zip(
            self.hits, self.evictions, self.density, strict=True
        ):
            # Summed from the end, as floating point numbers depend on the order.
            total = events = lifetime = 0.0
            for age in reversed(range(self.AGES)):
                hits[age] *= 0.9
                evictions[age] *= 0.9
                total += hits[age]
                events += hits[age] + evictions[age]
                lifetime += events
                density[age] = total / lifetime if events > 1e-5 else 0.0
