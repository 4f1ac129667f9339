# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of W-TinyLFU."""

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots
from tests.eviction.naive_models.draws import split_mix_below

MASK = 2**64 - 1


class NaiveSketch:
    """A count-min sketch of four rows; a counter is named by its row and place."""

    def __init__(self, num_blocks: int):
        self.width = max(64, 1 << max(0, num_blocks - 1).bit_length())
        self.period = 10 * max(1, num_blocks)
        self.counters: dict[tuple[int, int, int], int] = {}
        self.uses = 0

    def _places(self, key: int) -> list[tuple[int, int, int]]:
        places = []
        for row in range(4):
            folded = key ^ key >> 32
            mixed = (folded * (0x9E3779B97F4A7C15 + 2 * row) + row) & MASK
            mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & MASK
            places.append((row, (mixed >> 32) % self.width, mixed >> 30 & 3))
        return places

    def count(self, key: int) -> int:
        return min(self.counters.get(place, 0) for place in self._places(key))

    def add(self, key: int) -> None:
        rising = [p for p in self._places(key) if self.counters.get(p, 0) < 15]
        for place in rising:
            self.counters[place] = self.counters.get(place, 0) + 1
        if rising:
            self.uses += 1
        if rising and self.uses >= self.period:
            self.counters = {p: count // 2 for p, count in self.counters.items()}
            self.uses //= 2


class NaiveWTinyLfu(NaiveModel):
    """TOS 13(4) and Middleware'18.

    Args:
        num_slots: Capacity.
        window_ratio: Share of the window at the start, one block at least.
        protected_ratio: Share of the protected segment in the rest.
        climb: Whether the border between window and main part moves.
        seed: Of the draws.

    """

    name = "wtinylfu"

    def __init__(
        self,
        num_slots: int,
        window_ratio: float = 0.01,
        protected_ratio: float = 0.8,
        climb: bool = True,
        seed: int = 0,
    ):
        self.window_ratio = window_ratio
        self.protected_ratio = protected_ratio
        self.climbs = climb
        self.seed = int(seed)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.window: list[int] = []
        self.probation: list[int] = []
        self.protected: list[int] = []
        self.of_main: set[int] = set()  # belong to the main part, also in use
        self.of_protected: set[int] = set()  # to that segment of it
        self.hit: set[int] = set()  # a request hit them since they were queued
        self.sketch = NaiveSketch(self.capacity)
        self.window_limit = max(1, int(self.window_ratio * self.capacity))
        main = self.capacity - min(self.capacity, self.window_limit)
        self.protected_limit = int(self.protected_ratio * main)
        self.step = 0.0625 * self.capacity
        self.rate = 0.0
        self.accesses = self.hits = self.draws = 0

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        self.hit.discard(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            if slot in self.of_main:
                self.of_protected.add(slot)
        self._queue(slot).append(slot)
        while len(self.protected) > self.protected_limit:
            self.of_protected.discard(self.protected[0])
            self.probation.append(self.protected.pop(0))
        room = self.capacity - self.window_limit
        while len(self.window) > self.window_limit and len(self.of_main) < room:
            self._to_probation(self.window[0])

    def take(self, slot: int) -> None:
        self._queue(slot).remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self._queue(slot):
            self._queue(slot).remove(slot)
        for slots in (self.of_main, self.of_protected, self.hit):
            slots.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            self.sketch.add(key)
            self.accesses += 1
            if slot is not None:
                self.hits += 1
                self.hit.add(slot)
        if self.accesses >= 10 * self.capacity:
            self._climb()

    def victim(self) -> int | None:
        candidate = next(iter(self.window), None)
        resident = next(iter(self.probation + self.protected), None)
        main_is_over = len(self.of_main) > self.capacity - self.window_limit
        if resident is None:
            slot = candidate
        elif candidate is None or main_is_over:
            slot = resident
        else:
            challenge = self.sketch.count(self.key[candidate])
            defence = self.sketch.count(self.key[resident])
            wins = challenge > defence
            if challenge < defence and challenge > 5:
                wins = split_mix_below(self.seed, self.draws, 128) == 0
                self.draws += 1
            slot = resident if wins or challenge == defence else candidate
            if wins:
                self._to_probation(candidate)
        if slot is not None:
            self.forget(slot)
        return slot

    def _queue(self, slot: int) -> list[int]:
        if slot not in self.of_main:
            return self.window
        return self.protected if slot in self.of_protected else self.probation

    def _to_probation(self, slot: int) -> None:
        self.window.remove(slot)
        self.of_main.add(slot)
        self.probation.append(slot)

    def _climb(self) -> None:
        rate = self.hits / self.accesses
        change = rate - self.rate
        self.rate = rate
        self.accesses = self.hits = 0
        if not self.climbs:
            return
        amount = self.step if change >= 0 else -self.step
        self.step = 0.98 * amount
        if abs(change) >= 0.05:
            self.step = (1 if amount >= 0 else -1) * 0.0625 * self.capacity
        more = int(amount)  # towards zero
        more = max(min(more, self.protected_limit), 1 - self.window_limit)
        self.window_limit += more
        self.protected_limit -= more
