# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A pool of blocks that requests hold, with the events in the engine's order.

The hits are taken, victims are chosen for the rest, the request is admitted; it ends
later, and its blocks are released tail first. A block that is resident but stands
behind a hole is computed again; the second copy is as good as blank when it is
released.
"""

from collections.abc import Sequence
from typing import Any

from tests.eviction.block_info import BLOCK_SIZE, insert


class RequestPool:
    """Counts hits.

    Args:
        policy: For `num_slots` slots.
        num_slots: Blocks in the pool.

    """

    def __init__(self, policy: Any, num_slots: int):
        self.policy = policy
        self.resident: dict[int, int] = {}  # key -> slot
        self.evicted: list[int] = []  # keys, in order
        self._key: dict[int, int] = {}  # slot -> key
        self._holders = [0] * num_slots
        self._known: set[int] = set()
        self._num_evictable = 0
        self._blank = list(range(num_slots))
        self._running: dict[int, list[int]] = {}
        self._keys: dict[int, list[int]] = {}  # of running requests
        self._serial = 0

    @property
    def running(self) -> list[int]:
        """Serials of the requests that hold blocks, oldest first."""
        return list(self._running)

    def admit(self, keys: Sequence[int]) -> int | None:
        """Returns the number of blocks hit, or None when too few blocks are free."""
        num_hits = 0
        while num_hits < len(keys) and keys[num_hits] in self.resident:
            num_hits += 1
        hits = [self.resident[key] for key in keys[:num_hits]]
        idle = [slot for slot in hits if self._holders[slot] == 0]
        num_free = self._num_evictable - len(idle) + len(self._blank)
        if len(keys) - num_hits > num_free:
            return None
        for slot in idle:
            self.policy.take(slot)
            self._num_evictable -= 1
        computed = [self._new_block() for _ in keys[num_hits:]]
        self._serial += 1
        given = [*hits, *[None] * len(computed)]
        self.policy.admit(self._serial, list(keys), given, float(self._serial))
        for key, slot in zip(keys[num_hits:], computed, strict=True):
            self._fill(slot, key)
        for slot in hits + computed:
            self._holders[slot] += 1
        self._running[self._serial] = hits + computed
        self._keys[self._serial] = list(keys)
        return num_hits

    def finish(self, serial: int) -> None:
        slots = self._running.pop(serial)
        keys = self._keys.pop(serial)
        if hasattr(self.policy, "finish"):
            self.policy.finish(serial, keys, float(self._serial))
        for depth in reversed(range(len(slots))):
            slot = slots[depth]
            self._holders[slot] -= 1
            if self._holders[slot] == 0:
                self._release(slot, (1 + depth) * BLOCK_SIZE)

    def _new_block(self) -> int:
        if self._blank:
            return self._blank.pop()
        slot = self.policy.victim()
        assert slot in self._known and self._holders[slot] == 0
        self._num_evictable -= 1
        self._known.discard(slot)
        key = self._key.pop(slot)
        del self.resident[key]
        self.evicted.append(key)
        return slot

    def _fill(self, slot: int, key: int) -> None:
        if key in self.resident:
            return
        self.resident[key] = slot
        self._key[slot] = key
        if hasattr(self.policy, "fill"):
            self.policy.fill(slot, key)

    def _release(self, slot: int, depth: int) -> None:
        if slot not in self._key:
            self._blank.append(slot)
            return
        self._num_evictable += 1
        if slot in self._known:
            self.policy.reinsert(slot)
        else:
            self._known.add(slot)
            insert(self.policy, slot, self._key[slot], depth)
