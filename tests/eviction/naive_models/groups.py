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
        seed: Of the draws.

    """

    name = "partial-compute"

    def __init__(
        self, num_slots: int, samples: int = 16, chunk: int = 32, seed: int = 0
    ):
        self.samples = int(samples)
        self.chunk = int(chunk)
        self.seed = int(seed)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.groups = NaiveGroups()
        self.nodes = NaiveSample(self.samples, self.seed)  # with evictable blocks
        self.used: dict[int, int] = {}  # by node
        self.giving: int | None = None
        self.left = 0  # of its chunk
        self.finishing = False
        self.releasing: int | None = None
        self.clock = 0

    def insert(self, slot: int, key: int) -> None:
        node = self.releasing if self.finishing else None
        if node not in self.groups:
            node = self.groups.open()
        assert node is not None
        if self.finishing:
            self.releasing = node
        self.groups.join(slot, node)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        node = self.groups.of_slot[slot]
        if not self.groups.list_of(slot):
            self.nodes.add(node)
        self.groups.list_of(slot).append(slot)
        self.used[node] = self.clock

    def take(self, slot: int) -> None:
        node = self.groups.of_slot[slot]
        self.groups.list_of(slot).remove(slot)
        if not self.groups.list_of(slot):
            self.nodes.remove(node)
            if self.giving == node:
                self.giving = None

    def forget(self, slot: int) -> None:
        if slot in self.groups.list_of(slot):
            self.take(slot)
        self.groups.leave(slot)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        self.finishing = False
        self.clock += len(keys)

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        self.finishing = True
        self.releasing = None

    def victim(self) -> int | None:
        if not self.nodes.slots:
            return None
        self.finishing = False
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
