# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Models of the policies that order by recency: LRU, T-LRU, SLRU, ARC."""

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots


class NaiveLru(NaiveModel):
    """Released last, evicted last."""

    name = "lru"

    def clear(self) -> None:
        super().clear()
        self.order: list[int] = []

    def insert(self, slot: int, key: int) -> None:
        self.order.append(slot)

    def reinsert(self, slot: int) -> None:
        self.order.append(slot)

    def take(self, slot: int) -> None:
        self.order.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.order:
            self.order.remove(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        pass

    def victim(self) -> int | None:
        return self.order.pop(0) if self.order else None


class NaiveTLru(NaiveModel):
    """arXiv 2510.15152.

    Args:
        num_slots: Capacity.
        xi: Tokens that may be recomputed.
        next_prompt: The paper's Q, tokens.

    """

    name = "t-lru"

    def __init__(self, num_slots: int, xi: float = 2048, next_prompt: float = 256):
        self.xi = xi
        self.next_prompt = next_prompt
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.order: list[int] = []
        self.spare: set[int] = set()  # beyond B of all that used them, also in use
        self.history: int | None = None  # of the request whose blocks come back now

    def insert(self, slot: int, key: int) -> None:
        if self.history is not None:
            self.spare.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if self.history is not None:
            depth = self.depth[slot]
            self.history = max(self.history, depth)
            if depth <= max(0, self.history + self.next_prompt - self.xi):
                self.spare.discard(slot)
        self.order.append(slot)

    def take(self, slot: int) -> None:
        self.order.remove(slot)

    def forget(self, slot: int) -> None:
        self.spare.discard(slot)
        if slot in self.order:
            self.order.remove(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.history = None

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        self.history = 0

    def victim(self) -> int | None:
        first = [slot for slot in self.order if slot in self.spare]
        slot = next(iter(first or self.order), None)
        if slot is not None:
            self.history = None
            self.forget(slot)
        return slot


class NaiveSlru(NaiveModel):
    """IEEE Computer 27(3), with two segments.

    Args:
        num_slots: Capacity.
        protected_ratio: Share of the protected segment.

    """

    name = "slru"

    def __init__(self, num_slots: int, protected_ratio: float = 0.8):
        self.protected_ratio = protected_ratio
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.probation: list[int] = []
        self.protected: list[int] = []
        self.of_protected: set[int] = set()  # belong to that segment, also in use
        self.hit: set[int] = set()  # a request hit them since they were queued

    def insert(self, slot: int, key: int) -> None:
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            self.of_protected.add(slot)
        (self.protected if slot in self.of_protected else self.probation).append(slot)
        room = self.protected_ratio * (len(self.probation) + len(self.protected))
        while len(self.protected) > room:
            self.of_protected.discard(self.protected[0])
            self.probation.append(self.protected.pop(0))

    def take(self, slot: int) -> None:
        (self.protected if slot in self.of_protected else self.probation).remove(slot)

    def forget(self, slot: int) -> None:
        for segment in (self.probation, self.protected):
            if slot in segment:
                segment.remove(slot)
        self.of_protected.discard(slot)
        self.hit.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.hit.update(slot for slot in slots if slot is not None)

    def victim(self) -> int | None:
        for segment in (self.probation, self.protected):
            if segment:
                slot = segment[0]
                self.forget(slot)
                return slot
        return None


class NaiveArc(NaiveModel):
    """FAST'03, figure 4.

    Args:
        num_slots: The paper's c.
        tie_to_t1: Evict from T1 also when |T1| = p and the request is for a ghost
            of B2, as in the paper; `asked_b2` then says that it is. For
            comparisons only.

    """

    name = "arc"

    def __init__(self, num_slots: int, tie_to_t1: bool = False):
        self.tie_to_t1 = tie_to_t1
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[int] = []  # keys
        self.b2: list[int] = []
        self.of_t2: set[int] = set()  # belong to T2, also in use
        self.hit: set[int] = set()  # a request hit them since they were queued
        self.asked: set[int] = set()  # ghosts that have moved p already
        self.p = 0.0
        self.asked_b2 = False

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        if key in self.b1 + self.b2:
            if key not in self.asked:
                self._adapt(key)
            self.disown(key)
            self.hit.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            self.of_t2.add(slot)
        (self.t2 if slot in self.of_t2 else self.t1).append(slot)
        self._bound()

    def take(self, slot: int) -> None:
        (self.t2 if slot in self.of_t2 else self.t1).remove(slot)

    def forget(self, slot: int) -> None:
        for queue in (self.t1, self.t2):
            if slot in queue:
                queue.remove(slot)
        self._drop(slot)

    def disown(self, key: int) -> None:
        for ghosts in (self.b1, self.b2):
            if key in ghosts:
                ghosts.remove(key)
        self.asked.discard(key)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            if slot is not None:
                self.hit.add(slot)
            elif key in self.b1 + self.b2:
                self.ghost_hits += 1
                self._adapt(key)
                self.asked.add(key)
                ghosts = self.b1 if key in self.b1 else self.b2
                ghosts.remove(key)
                ghosts.append(key)  # renewed until the block is back

    def victim(self) -> int | None:
        if not self.t1 and not self.t2:
            return None
        tie = self.tie_to_t1 and self.asked_b2 and len(self.t1) == self.p
        if self.t1 and (not self.t2 or len(self.t1) > self.p or tie):
            slot, ghosts = self.t1.pop(0), self.b1
        else:
            slot, ghosts = self.t2.pop(0), self.b2
        # c ghosts, and one more until the next insertion: more only go when
        # several blocks are evicted at once, and then as in case IV.
        if len(self.b1) + len(self.b2) > self.capacity:
            full_l1 = len(self.t1) + len(self.b1) + (ghosts is self.b1) >= self.capacity
            pays = self.b1 if self.b1 and (full_l1 or not self.b2) else self.b2
            self.disown(pays[0])
        ghosts.append(self.key[slot])
        self._drop(slot)
        return slot

    def ghosts(self) -> list[int]:
        return self.b1 + self.b2

    def _adapt(self, key: int) -> None:
        if key in self.b1:
            self.p = min(self.capacity, self.p + max(1, len(self.b2) / len(self.b1)))
        else:
            self.p = max(0, self.p - max(1, len(self.b1) / len(self.b2)))

    def _bound(self) -> None:
        """|T1| + |B1| <= c, and c ghosts, that is 2c in all for a full cache."""
        while self.b1 and len(self.t1) + len(self.b1) > self.capacity:
            self.disown(self.b1[0])
        while self.b2 and len(self.b1) + len(self.b2) > self.capacity:
            self.disown(self.b2[0])

    def _drop(self, slot: int) -> None:
        self.key.pop(slot, None)
        self.of_t2.discard(slot)
        self.hit.discard(slot)
