# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of LeCaR."""

import math
from typing import ClassVar

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots
from tests.eviction.naive_models.draws import split_mix


class NaiveLeCaR(NaiveModel):
    """HotStorage'18.

    Args:
        num_slots: Capacity, the paper's N.
        learning_rate: The paper's lambda.
        discount: What is left of a regret after N accesses.
        ghost_ratio: Both histories, as a share of the capacity.
        seed: Of the draws.
        libcachesim: Its rules where they are not ours, for comparisons only. A block
            that returns has one use, whatever it had before; the two histories
            together have as many ghosts as there are blocks; and those on which the
            experts agree are remembered too.

    """

    name = "lecar"
    MOST_USES: ClassVar[int] = 1023

    def __init__(
        self,
        num_slots: int,
        learning_rate: float = 0.45,
        discount: float = 0.005,
        ghost_ratio: float = 0.5,
        seed: int = 0,
        libcachesim: bool = False,
    ):
        self.libcachesim = libcachesim
        self.learning_rate = learning_rate
        self.decay = math.log(discount) / num_slots
        self.history_limit = int(ghost_ratio * num_slots / 2)
        self.seed = int(seed)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.by_release: list[int] = []
        self.by_use: list[int] = []  # the order between blocks of equal uses
        self.uses: dict[int, int] = {}
        # Key -> when it was evicted, uses, whether it was asked for; oldest first.
        self.of_lru: dict[int, tuple[int, int, bool]] = {}
        self.of_lfu: dict[int, tuple[int, int, bool]] = {}
        self.lru_weight = 0.5
        self.accesses = 0
        self.evictions = 0

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        for history in (self.of_lru, self.of_lfu):
            if key in history:
                _, uses, asked = history[key]
                if not asked:
                    self._regret(history, key)
                if not self.libcachesim:
                    self.uses[slot] = self.uses.get(slot, 0) + uses
        self.disown(key)
        self._count(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        self.by_release.append(slot)
        self.by_use.append(slot)

    def take(self, slot: int) -> None:
        self.by_release.remove(slot)
        self.by_use.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.by_release:
            self.take(slot)
        self.key.pop(slot, None)
        self.uses.pop(slot, None)

    def disown(self, key: int) -> None:
        self.of_lru.pop(key, None)
        self.of_lfu.pop(key, None)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            self.accesses += 1
            if slot is not None:
                self._count(slot)
                if slot in self.by_use:
                    self.by_use.remove(slot)
                    self.by_use.append(slot)
            for history in (self.of_lru, self.of_lfu):
                if slot is None and key in history:
                    self.ghost_hits += 1
                    self._regret(history, key)
                    evicted, uses, _ = history.pop(key)
                    history[key] = evicted, uses, True

    def victim(self) -> int | None:
        if not self.by_release:
            return None
        oldest = self.by_release[0]
        rarest = min(self.by_use, key=self.uses.__getitem__)  # the first of equals
        by_lru = split_mix(self.seed, self.evictions) < self.lru_weight
        self.evictions += 1
        slot = oldest if by_lru else rarest
        key = self.key[slot]
        self.disown(key)
        history = self.of_lru if by_lru else self.of_lfu
        if self.libcachesim:
            history[key] = self.accesses, self.uses[slot], False
            if len(self.of_lru) + len(self.of_lfu) > self.capacity:
                self.disown(min(self.of_lru | self.of_lfu, key=self._evicted_at))
        elif oldest != rarest and self.history_limit > 0:
            if len(history) == self.history_limit:
                del history[next(iter(history))]
            history[key] = self.accesses, self.uses[slot], False
        self.forget(slot)
        return slot

    def ghosts(self) -> list[int]:
        return [*self.of_lru, *self.of_lfu]

    def _evicted_at(self, key: int) -> int:
        return (self.of_lru | self.of_lfu)[key][0]

    def _regret(self, history: dict[int, tuple[int, int, bool]], key: int) -> None:
        age = self.accesses - history[key][0]
        gain = math.exp(self.learning_rate * math.exp(self.decay * age))
        lru, lfu = self.lru_weight, 1 - self.lru_weight
        if history is self.of_lru:
            lfu *= gain
        else:
            lru *= gain
        self.lru_weight = min(0.99, max(0.01, lru / (lru + lfu)))

    def _count(self, slot: int) -> None:
        self.uses[slot] = min(self.MOST_USES, self.uses.get(slot, 0) + 1)
