# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Models of the policies that evict by groups of blocks: sessions, nodes."""

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots
from tests.eviction.naive_models.lhd import NaiveSample


class NaiveGroups:
    """Groups of slots, by name; a group is there as long as it has a member."""

    def __init__(self) -> None:
        self.of_slot: dict[int, int] = {}
        self.evictable: dict[int, list[int]] = {}  # in order of release
        self.opened = 0

    def open(self) -> int:
        self.opened += 1
        self.evictable[self.opened] = []
        return self.opened

    def __contains__(self, group: int | None) -> bool:
        return group in self.of_slot.values()

    def leave(self, slot: int) -> None:
        group = self.of_slot.pop(slot, None)
        if group is not None and group not in self:
            del self.evictable[group]

    def join(self, slot: int, group: int) -> None:
        if self.of_slot.get(slot) != group:
            self.leave(slot)
            self.of_slot[slot] = group

    def list_of(self, slot: int) -> list[int]:
        return self.evictable.get(self.of_slot.get(slot, 0), [])


class NaiveSessionLru(NaiveModel):
    """Whole sessions, by their last release."""

    name = "session-lru"

    def clear(self) -> None:
        super().clear()
        self.groups = NaiveGroups()
        self.order: list[int] = []  # sessions with evictable blocks
        self.length: dict[int, int] = {}  # of a session's last request, blocks
        self.running: dict[int, int] = {}  # serial -> session that it goes on with
        self.going: int | None = None
        self.finished: int | None = None  # blocks of the request that ends
        self.releasing: int | None = None  # its session

    def insert(self, slot: int, key: int) -> None:
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        groups = self.groups
        if self.finished is not None:
            if self.releasing not in groups:
                groups.leave(slot)
                self.releasing = groups.open()
            assert self.releasing is not None
            groups.join(slot, self.releasing)
            self.length[self.releasing] = self.finished
        elif slot not in groups.of_slot:
            groups.join(slot, groups.open())
            self.length[groups.of_slot[slot]] = 1
        session = groups.of_slot[slot]
        if session in self.order:
            self.order.remove(session)
        self.order.append(session)
        groups.list_of(slot).append(slot)
        if self.going == session:
            self.going = None

    def take(self, slot: int) -> None:
        session = self.groups.of_slot[slot]
        self.groups.list_of(slot).remove(slot)
        if not self.groups.list_of(slot):
            self.order.remove(session)
            if self.going == session:
                self.going = None

    def forget(self, slot: int) -> None:
        if slot in self.groups.list_of(slot):
            self.take(slot)
        self.groups.leave(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.finished = self.releasing = None
        hits = [slot for slot in slots if slot is not None]
        session = self.groups.of_slot.get(hits[-1]) if hits else None
        if session is not None and 2 * len(hits) >= self.length[session]:
            if len(self.running) == self.capacity:
                self.running.clear()
            self.running[serial] = session

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        self.finished = len(keys)
        self.releasing = self.running.pop(serial, None)

    def victim(self) -> int | None:
        if not self.order:
            return None
        self.finished = self.releasing = None
        if self.going is None:
            self.going = self.order[0]
        slot = self.groups.evictable[self.going][0]
        self.forget(slot)
        return slot


class NaiveRandomCompute(NaiveModel):
    """The cheapest of a sample for the time since its last use.

    Args:
        num_slots: Capacity.
        samples: Blocks that are drawn.
        seed: Of the draws.

    """

    name = "random-compute"

    def __init__(self, num_slots: int, samples: int = 16, seed: int = 0):
        self.samples = int(samples)
        self.seed = int(seed)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.blocks = NaiveSample(self.samples, self.seed)
        self.used: dict[int, int] = {}
        self.hit: set[int] = set()  # used since they were queued
        self.clock = 0

    def insert(self, slot: int, key: int) -> None:
        self.hit.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.hit.discard(slot)
            self.used[slot] = self.clock
        self.blocks.add(slot)

    def take(self, slot: int) -> None:
        self.blocks.remove(slot)

    def forget(self, slot: int) -> None:
        if slot in self.blocks.slots:
            self.blocks.remove(slot)
        self.hit.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.clock += len(keys)
        self.hit.update(slot for slot in slots if slot is not None)

    def victim(self) -> int | None:
        slot = self.blocks.lowest(self._score)
        if slot is not None:
            self.forget(slot)
        return slot

    def _score(self, slot: int) -> float:
        cost = round(256 * self.cost.get(slot, 1.0))
        return cost / (1.0 + (self.clock - self.used[slot]))


class NaivePartialCompute(NaiveModel):
    """Chunks from the beginning of what a request computed.

    Args:
        num_slots: Capacity.
        samples: Nodes that are drawn.
        chunk: Blocks that a node gives at once.
        small_ratio: Share of the evictable blocks that wait in a queue until they are
            hit, where there is one.
        seed: Of the draws.

    """

    name = "partial-compute"

    def __init__(
        self,
        num_slots: int,
        samples: int = 16,
        chunk: int = 32,
        small_ratio: float = 0.0,
        seed: int = 0,
    ):
        self.samples = int(samples)
        self.chunk = int(chunk)
        self.small_ratio = small_ratio
        self.seed = int(seed)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.groups = NaiveGroups()
        self.nodes = NaiveSample(self.samples, self.seed)  # with blocks to give
        self.small: list[int] = []
        self.new: set[int] = set()  # never hit, with a small queue
        self.hit: set[int] = set()  # used since they were queued
        self.used: dict[int, int] = {}  # by node
        self.giving: int | None = None
        self.left = 0  # of its chunk
        self.releasing: int | None = None
        self.released_depth = 0
        self.clock = 0

    def insert(self, slot: int, key: int) -> None:
        depth = self.depth.get(slot, 0)
        if self.releasing not in self.groups or depth >= self.released_depth:
            self.releasing = self.groups.open()
        assert self.releasing is not None
        self.released_depth = depth
        self.groups.join(slot, self.releasing)
        self.used[self.releasing] = self.clock
        if self.small_ratio > 0 and slot not in self.hit:
            self.new.add(slot)
        self.hit.discard(slot)
        self._enqueue(slot)

    def reinsert(self, slot: int) -> None:
        self.releasing = None
        if slot in self.hit:
            self.hit.discard(slot)
            self.new.discard(slot)
            self.used[self.groups.of_slot[slot]] = self.clock
        self._enqueue(slot)

    def _enqueue(self, slot: int) -> None:
        if slot in self.new:
            self.small.append(slot)
            return
        if not self.groups.list_of(slot):
            self.nodes.add(self.groups.of_slot[slot])
        self.groups.list_of(slot).append(slot)

    def take(self, slot: int) -> None:
        if slot in self.small:
            self.small.remove(slot)
            return
        node = self.groups.of_slot[slot]
        self.groups.list_of(slot).remove(slot)
        if not self.groups.list_of(slot):
            self.nodes.remove(node)
            if self.giving == node:
                self.giving = None

    def forget(self, slot: int) -> None:
        if slot in self.small or slot in self.groups.list_of(slot):
            self.take(slot)
        self.groups.leave(slot)
        self.new.discard(slot)
        self.hit.discard(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.releasing = None
        self.clock += len(keys)
        self.hit.update(slot for slot in slots if slot is not None)

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        self.releasing = None

    def victim(self) -> int | None:
        main = sum(len(slots) for slots in self.groups.evictable.values())
        small = len(self.small)
        if small + main == 0:
            return None
        self.releasing = None
        if small and (main == 0 or small >= self.small_ratio * (small + main)):
            slot = self.small[0]
            self.forget(slot)
            return slot
        if self.giving is None:
            self.giving = self.nodes.lowest(self._score)
            self.left = self.chunk
        assert self.giving is not None
        slot = self.groups.evictable[self.giving][-1]
        self.left -= 1
        self.forget(slot)
        if self.left == 0:
            self.giving = None
        return slot

    def _score(self, node: int) -> float:
        slots = self.groups.evictable[node]
        cost = sum(round(256 * self.cost.get(slot, 1.0)) for slot in slots)
        return cost / len(slots) / (1.0 + (self.clock - self.used[node]))
