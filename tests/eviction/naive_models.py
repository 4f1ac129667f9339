# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies once more, plainly, from their papers.

Lists and dicts, a scan wherever a scan is the shortest way to say it: these are
what the C++ is held against, so they must be easy to believe and may be slow. A
list of blocks is in order of eviction: index 0 goes first. What differs from the
papers is what the headers in `csrc/eviction/policies` state.

All models take the calls of `vllm._eviction_C.Policy`, of which they know those
that matter to them.
"""

from collections.abc import Sequence
from typing import ClassVar

Keys = Sequence[int]
Slots = Sequence[int | None]  # None where a request has to compute the block


class NaiveModel:
    """What all models share: which key a slot holds, and what is in use."""

    name: ClassVar[str]

    def __init__(self, num_slots: int):
        self.capacity = num_slots
        self.clear()

    def clear(self) -> None:
        self.key: dict[int, int] = {}  # of known slots, evictable or in use
        self.in_use: set[int] = set()  # known, but a request holds it
        self.ghost_hits = 0

    def disown(self, key: int) -> None:
        """A model without ghosts has none to drop."""

    def ghosts(self) -> list[int]:
        return []


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


class NaiveSieve(NaiveModel):
    """NSDI'24, algorithm 1, with the list turned round: its tail is index 0 here.

    The hand is the block to look at next, or None, which means the oldest. Blocks
    in use keep their place and are passed over.
    """

    name = "sieve"

    def clear(self) -> None:
        super().clear()
        self.order: list[int] = []  # of arrival, blocks in use too
        self.visited: set[int] = set()
        self.hand: int | None = None

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        self.order.append(slot)

    def reinsert(self, slot: int) -> None:
        self.in_use.discard(slot)

    def take(self, slot: int) -> None:
        self.in_use.add(slot)

    def forget(self, slot: int) -> None:
        self.visited.discard(slot)
        self.in_use.discard(slot)
        if slot in self.order:
            self._remove(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.visited.update(slot for slot in slots if slot is not None)

    def victim(self) -> int | None:
        if not any(slot not in self.in_use for slot in self.order):
            return None
        slot = self.order[0] if self.hand is None else self.hand
        while slot in self.in_use or slot in self.visited:
            if slot not in self.in_use:
                self.visited.discard(slot)
            newer = self._newer(slot)
            slot = self.order[0] if newer is None else newer
        self.hand = slot
        self._remove(slot)
        return slot

    def _newer(self, slot: int) -> int | None:
        place = self.order.index(slot) + 1
        return self.order[place] if place < len(self.order) else None

    def _remove(self, slot: int) -> None:
        if self.hand == slot:
            self.hand = self._newer(slot)
        self.order.remove(slot)
        del self.key[slot]


class NaiveS3Fifo(NaiveModel):
    """SOSP'23, algorithm 1, and the authors' code for what that leaves open.

    Args:
        num_slots: Capacity.
        small_ratio: Share of the small queue.
        ghost_ratio: Ghosts, as a share of the capacity.
        promotion: Uses that lead from the small to the main queue.
        libcachesim: Its rules where they are not ours, for comparisons only. The
            small queue is evicted from while the main queue is within *its* share
            of the capacity, in place of once it has used up its own, and until
            one of its blocks has gone, however many are promoted; before the
            first eviction, what the small queue has no room for enters the main
            queue; a ghost that is asked for leaves at once.

    """

    name = "s3fifo"

    def __init__(
        self,
        num_slots: int,
        small_ratio: float = 0.1,
        ghost_ratio: float = 0.9,
        promotion: int = 1,
        libcachesim: bool = False,
    ):
        self.small_ratio = small_ratio
        self.ghost_limit = int(ghost_ratio * num_slots)
        self.promotion = promotion
        self.libcachesim = libcachesim
        self.small_limit = int(small_ratio * num_slots)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.small: list[int] = []
        self.main: list[int] = []
        self.of_main: set[int] = set()  # belong to the main queue, also in use
        self.uses: dict[int, int] = {}
        self.ghost_keys: list[int] = []
        self.asked: set[int] = set()  # were ghosts; libcachesim's rule only
        self.evicted = False

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        if key in self.ghost_keys or key in self.asked:
            self.disown(key)
            self.asked.discard(key)
            self.of_main.add(slot)
        elif (
            self.libcachesim
            and not self.evicted
            and len(self.small) >= self.small_limit
        ):
            self.of_main.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        (self.main if slot in self.of_main else self.small).append(slot)

    def take(self, slot: int) -> None:
        (self.main if slot in self.of_main else self.small).remove(slot)

    def forget(self, slot: int) -> None:
        for queue in (self.small, self.main):
            if slot in queue:
                queue.remove(slot)
        self._drop(slot)

    def disown(self, key: int) -> None:
        if key in self.ghost_keys:
            self.ghost_keys.remove(key)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            if slot is not None:
                self.uses[slot] = min(3, self.uses.get(slot, 0) + 1)
            elif key in self.ghost_keys:
                self.ghost_hits += 1
                if self.libcachesim:
                    self.disown(key)
                    self.asked.add(key)
                else:
                    self._add_ghost(key)  # renewed until the block is back

    def victim(self) -> int | None:
        self.evicted = True
        stay_with_small = False
        while self.small or self.main:
            if (stay_with_small and self.small) or self._small_is_due():
                slot = self.small.pop(0)
                if self.uses.get(slot, 0) >= self.promotion:
                    self.of_main.add(slot)
                    self.uses[slot] = 0
                    self.main.append(slot)
                    stay_with_small = self.libcachesim
                    continue
                self._add_ghost(self.key[slot])
                self._drop(slot)
                return slot
            slot = self.main.pop(0)
            if self.uses.get(slot, 0) > 0:
                self.uses[slot] -= 1
                self.main.append(slot)
                continue
            self._drop(slot)
            return slot
        return None

    def ghosts(self) -> list[int]:
        return self.ghost_keys

    def _small_is_due(self) -> bool:
        if not self.small or not self.main:
            return bool(self.small)
        if self.libcachesim:
            return len(self.main) <= self.capacity - self.small_limit
        return len(self.small) >= self.small_ratio * (len(self.small) + len(self.main))

    def _add_ghost(self, key: int) -> None:
        self.disown(key)
        self.ghost_keys = [*self.ghost_keys, key][-self.ghost_limit :]
        if self.ghost_limit == 0:
            self.ghost_keys = []

    def _drop(self, slot: int) -> None:
        self.key.pop(slot, None)
        self.uses.pop(slot, None)
        self.of_main.discard(slot)


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


MODELS: dict[str, type[NaiveModel]] = {
    model.name: model for model in (NaiveLru, NaiveS3Fifo, NaiveSieve, NaiveArc)
}
