# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of workload-aware eviction."""

import math
from dataclasses import dataclass

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots

Category = tuple[bool, int]  # shared; turn 1, 2, 3 to 4, 5 and more


@dataclass
class Fit:
    """What was seen of a category: times are in accesses, summed."""

    releases: float = 0.0
    returns: float = 0.0
    times: float = 0.0


def category(turn: int, shared: bool) -> Category:
    return shared, (turn - 1 if turn <= 2 else 2 if turn <= 4 else 3)


class NaiveWorkloadAware(NaiveModel):
    """ATC'25.

    Args:
        num_slots: Capacity.
        horizon: The window within which a return counts, accesses, as a multiple of the
            capacity.
        ghost_ratio: Ghosts, as a share of the capacity.

    """

    name = "workload-aware"

    def __init__(self, num_slots: int, horizon: float = 1.0, ghost_ratio: float = 0.5):
        self.horizon = horizon * num_slots
        self.ghost_limit = int(ghost_ratio * num_slots)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.queues: dict[Category, list[int]] = {
            (shared, late): [] for shared in (False, True) for late in range(4)
        }
        self.category: dict[int, Category] = {}  # of the last use
        self.turn: dict[int, int] = {}  # in which a block was computed
        self.hits: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self.waits: set[int] = set()  # released and not hit since
        self.fits = {each: Fit() for each in self.queues}
        # Key -> when it was released and of what category, if it still waited; None
        # for one that has been asked for. Oldest first.
        self.ghost_keys: dict[int, tuple[int, Category] | None] = {}
        self.turns: dict[int, int] = {}  # of running requests
        self.turn_of_last = 1  # of the request that ended last
        self.clock = self.num_released = 0

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        self.disown(key)
        self.turn[slot] = self.turn_of_last
        self.category.setdefault(slot, category(self.turn_of_last, False))
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        own = self.category[slot]
        self.queues[own].append(slot)
        self.released[slot] = self.clock
        self.waits.add(slot)
        self.fits[own].releases += 1
        self.num_released += 1
        if self.num_released >= 2 * self.capacity:
            self.num_released = 0
            for fit in self.fits.values():
                fit.releases /= 2
                fit.returns /= 2
                fit.times /= 2

    def take(self, slot: int) -> None:
        for queue in self.queues.values():
            if slot in queue:
                queue.remove(slot)

    def forget(self, slot: int) -> None:
        self.take(slot)
        for of_slot in (self.key, self.category, self.turn, self.hits, self.released):
            of_slot.pop(slot, None)
        self.waits.discard(slot)

    def disown(self, key: int) -> None:
        self.ghost_keys.pop(key, None)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        given = [slot for slot in slots if slot is not None]
        turn = min(15, self.turn.get(given[-1], 1) + 1) if given else 1
        for key, slot in zip(keys, slots, strict=True):
            if slot is not None:
                self._hit(slot, turn)
            elif key in self.ghost_keys:
                self.ghost_hits += 1
                was = self.ghost_keys.pop(key)
                if was is not None:
                    self._returned(*was)
                self.ghost_keys[key] = None
        self.clock += len(keys)
        if turn > 1:
            if len(self.turns) == self.capacity:
                self.turns.clear()
            self.turns[serial] = turn

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        self.turn_of_last = self.turns.pop(serial, 1)

    def victim(self) -> int | None:
        heads = [(own, queue[0]) for own, queue in self.queues.items() if queue]
        if not heads:
            return None
        own, slot = min(heads, key=lambda head: self._probability(*head))
        key = self.key[slot]
        self.disown(key)
        waits = slot in self.waits
        self.ghost_keys[key] = (self.released[slot], own) if waits else None
        if len(self.ghost_keys) > self.ghost_limit:
            del self.ghost_keys[next(iter(self.ghost_keys))]
        self.forget(slot)
        return slot

    def ghosts(self) -> list[int]:
        return list(self.ghost_keys)

    def _hit(self, slot: int, turn: int) -> None:
        if slot in self.waits:
            self._returned(self.released[slot], self.category[slot])
            self.waits.discard(slot)
        self.hits[slot] = min(15, self.hits.get(slot, 0) + 1)
        own = max(0, turn - self.turn.get(slot, 1))
        self.category[slot] = category(turn, self.hits[slot] > own)

    def _returned(self, released: int, own: Category) -> None:
        self.fits[own].returns += 1
        self.fits[own].times += self.clock - released

    def _probability(self, own: Category, slot: int) -> float:
        fit = self.fits[own]
        rate = (fit.returns + 1) / (fit.times + self.horizon)
        ever = (fit.returns + 1) / (fit.releases + 2)
        age = self.clock - self.released[slot]
        return ever * (math.exp(-rate * age) - math.exp(-rate * (age + self.horizon)))
