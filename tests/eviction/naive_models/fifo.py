# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Models of the policies built of FIFO queues: SIEVE, S3-FIFO, 2Q."""

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots


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
        kappa: S4-FIFO's age, as a share of the small queue, before which uses do not
            count.
        remembered_uses: S4-FIFO's tau_G; see `NaiveS4Fifo`.
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
        kappa: float = 0.0,
        remembered_uses: int = 0,
        libcachesim: bool = False,
    ):
        self.small_ratio = small_ratio
        self.kappa = kappa
        self.remembered_uses = remembered_uses
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
        self.arrivals: dict[int, int] = {}  # slot -> its number, also in use
        self.arrived = 0

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        self.arrivals[slot] = self.arrived
        self.arrived += 1
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
                if self._is_old(slot):
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
                if self.uses.get(slot, 0) >= self.remembered_uses:
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

    def _is_old(self, slot: int) -> bool:
        if self.kappa == 0 or slot in self.of_main:
            return True
        age = self.arrived - self.arrivals.get(slot, self.arrived)
        return age >= self.kappa * len(self.small)

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
        self.arrivals.pop(slot, None)


class NaiveS4Fifo(NaiveS3Fifo):
    """OSDI'26: the knobs of S3-FIFO.

    Args:
        num_slots: Capacity.
        rho_s: Share of the small queue.
        rho_g: Ghosts, as a share of the capacity.
        kappa: Age before which uses do not count, as a share of the small queue.
        tau_s: Uses that lead from the small to the main queue.
        tau_g: Uses that make a block worth remembering.

    """

    name = "s4fifo"

    def __init__(
        self,
        num_slots: int,
        rho_s: float = 0.1,
        rho_g: float = 0.9,
        kappa: float = 0.25,
        tau_s: int = 1,
        tau_g: int = 0,
    ):
        super().__init__(num_slots, rho_s, rho_g, tau_s, kappa, tau_g)


class NaiveTwoQueue(NaiveModel):
    """VLDB'94, the full version.

    Args:
        num_slots: Capacity.
        in_ratio: Share of A1in.
        ghost_ratio: Keys in A1out, as a share of the capacity.
        libcachesim: A ghost that is asked for leaves A1out at once, so that there is
            room for that of the victim. For comparisons only.

    """

    name = "2q"

    def __init__(
        self,
        num_slots: int,
        in_ratio: float = 0.25,
        ghost_ratio: float = 0.5,
        libcachesim: bool = False,
    ):
        self.in_ratio = in_ratio
        self.libcachesim = libcachesim
        self.ghost_limit = int(ghost_ratio * num_slots)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.a1in: list[int] = []
        self.a1out: list[int] = []  # keys
        self.am: list[int] = []
        self.of_am: set[int] = set()  # belong to Am, also in use
        self.asked: set[int] = set()  # were ghosts; libcachesim's rule only

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        if key in self.a1out or key in self.asked:
            self.disown(key)
            self.asked.discard(key)
            self.of_am.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        (self.am if slot in self.of_am else self.a1in).append(slot)

    def take(self, slot: int) -> None:
        (self.am if slot in self.of_am else self.a1in).remove(slot)

    def forget(self, slot: int) -> None:
        for queue in (self.a1in, self.am):
            if slot in queue:
                queue.remove(slot)
        self.key.pop(slot, None)
        self.of_am.discard(slot)

    def disown(self, key: int) -> None:
        if key in self.a1out:
            self.a1out.remove(key)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            if slot is None and key in self.a1out:
                self.ghost_hits += 1
                if self.libcachesim:
                    self.disown(key)
                    self.asked.add(key)
                else:
                    self._add_ghost(key)  # renewed until the block is back
            elif slot in self.am:  # only where nothing is in use
                self.am.remove(slot)
                self.am.append(slot)

    def victim(self) -> int | None:
        evictable = len(self.a1in) + len(self.am)
        if evictable == 0:
            return None
        if self.a1in and (not self.am or len(self.a1in) > self.in_ratio * evictable):
            slot = self.a1in[0]
            self._add_ghost(self.key[slot])
        else:
            slot = self.am[0]
        self.forget(slot)
        return slot

    def ghosts(self) -> list[int]:
        return self.a1out

    def _add_ghost(self, key: int) -> None:
        self.disown(key)
        self.a1out.append(key)
        del self.a1out[: max(0, len(self.a1out) - self.ghost_limit)]
