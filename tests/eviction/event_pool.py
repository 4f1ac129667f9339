# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random events that a free queue is allowed to send to a policy.

A test draws (event, number) pairs; `EventPool.step` makes of each an event that is
legal in the state that the pool is in, sends it to all policies under test, and
holds every victim against what the contract promises. Keys are few, twice as many
as slots, so that ghosts are asked for all the time.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from hypothesis import strategies as st

from tests.eviction.block_info import BLOCK_SIZE, insert

# The events that keep a pool busy are drawn more often than those that empty it.
EVENTS = (
    *("fill", "fill", "fill", "release", "release", "release", "release"),
    *("admit", "admit", "admit", "take", "take", "victim", "forget", "disown"),
    "finish",
)


class Subject(Protocol):
    """What is tested: a policy of the C++ core, or a naive model."""

    def insert(self, slot: int, key: int) -> None: ...
    def reinsert(self, slot: int) -> None: ...
    def take(self, slot: int) -> None: ...
    def forget(self, slot: int) -> None: ...
    def disown(self, key: int) -> None: ...
    def admit(self, serial: int, keys: Any, slots: Any, now: float) -> None: ...
    def victim(self) -> int | None: ...


def event_lists(max_size: int = 150) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Lists of all lengths alike; hypothesis' own are five long on average.

    Drawn as one string of bytes, three for an event, which is much faster than
    drawing each.
    """
    return (
        st.integers(0, max_size)
        .flatmap(lambda size: st.binary(min_size=3 * size, max_size=3 * size))
        .map(_decode)
    )


def _decode(data: bytes) -> list[tuple[str, int]]:
    return [
        (EVENTS[data[at] % len(EVENTS)], int.from_bytes(data[at + 1 : at + 3], "big"))
        for at in range(0, len(data), 3)
    ]


class EventPool:
    """A pool of slots, without data, and the policies that order it.

    Args:
        num_slots: Slots in the pool.
        policies: All get the same events, and must choose the same victims.
        hit_in_place: Requests may hit blocks that they did not take, as in caches
            without blocks in use.
        depths: Of how many depths blocks are.

    """

    def __init__(
        self,
        num_slots: int,
        *policies: Subject,
        hit_in_place: bool = False,
        depths: int = 5,
    ):
        self.num_slots = num_slots
        self.policies = policies
        self.hit_in_place = hit_in_place
        self.depths = depths
        self.keys = range(1, 2 * num_slots + 3)
        self.content: dict[int, int] = {}  # slot -> key
        self.evictable: list[int] = []  # in order of release
        self.in_use: list[int] = []
        self.known: set[int] = set()  # inserted, evictable or in use
        self.log: list[tuple[Any, ...]] = []
        self._serial = 0
        self._admitted: tuple[int, list[int]] = (0, [])  # serial and keys of the last

    def step(self, event: str, number: int) -> None:
        getattr(self, event)(number)

    def run(self, events: Sequence[tuple[str, int]]) -> None:
        for event, number in events:
            self.step(event, number)

    def slot_of(self, key: int) -> int | None:
        """The slot that holds a key, if any."""
        return next((s for s, held in self.content.items() if held == key), None)

    # ---- Events. ----

    def fill(self, number: int) -> None:
        """A request computes a block, in a blank slot or a victim's."""
        key = self.keys[number % len(self.keys)]
        if self.slot_of(key) is not None:
            return
        blank = [s for s in range(self.num_slots) if s not in self.content]
        slot = blank[number % len(blank)] if blank else self.victim()
        if slot is None:
            return
        self.log.append(("fill", slot, key))
        self.content[slot] = key
        self.in_use.append(slot)
        for policy in self.policies:  # nothing to a policy, but to a pool with one
            if hasattr(policy, "fill"):
                policy.fill(slot, key)

    def release(self, number: int) -> None:
        """A block in use becomes evictable."""
        if not self.in_use:
            return
        slot = self.in_use.pop(number % len(self.in_use))
        self.evictable.append(slot)
        if slot in self.known:
            self._send("reinsert", slot)
        else:
            self.known.add(slot)
            key = self.content[slot]
            depth = BLOCK_SIZE * (1 + key % self.depths)
            self.log.append(("insert", slot, key, depth))
            for policy in self.policies:
                insert(policy, slot, key, depth)

    def take(self, number: int) -> None:
        if not self.evictable:
            return
        slot = self.evictable.pop(number % len(self.evictable))
        self.in_use.append(slot)
        self._send("take", slot)

    def admit(self, number: int) -> None:
        """A request of one to three blocks, of which it was given some."""
        keys = [
            self.keys[(number + step * (number % 7)) % len(self.keys)]
            for step in range(1 + number % 3)
        ]
        keys = list(dict.fromkeys(keys))
        slots = [self.slot_of(key) for key in keys]
        if not self.hit_in_place:
            slots = [slot if slot in self.in_use else None for slot in slots]
            # A block that is there, and evictable, would have been taken.
            known = [
                s is not None or self.slot_of(k) is None
                for k, s in zip(keys, slots, strict=True)
            ]
            keys = [key for key, keep in zip(keys, known, strict=True) if keep]
            slots = [slot for slot, keep in zip(slots, known, strict=True) if keep]
        self._serial += 1
        self._admitted = (self._serial, keys)
        self._send("admit", self._serial, keys, slots, float(self._serial))

    def finish(self, number: int) -> None:
        """The last request ends; its blocks, if any, are released next."""
        serial, keys = self._admitted
        self.log.append(("finish", serial, keys))
        for policy in self.policies:
            if hasattr(policy, "finish"):
                policy.finish(serial, keys, float(serial))

    def victim(self, number: int = 0) -> int | None:
        """Evict; all policies must choose the same block, an evictable one."""
        chosen = [policy.victim() for policy in self.policies]
        self.log.append(("victim", *chosen))
        slot = chosen[0]
        assert all(other == slot for other in chosen), f"victims differ: {chosen}"
        if not self.evictable:
            assert slot is None, f"{slot} was chosen of no evictable block"
            return None
        assert slot in self.evictable, f"{slot} was chosen of {self.evictable}"
        self.evictable.remove(slot)
        self.known.discard(slot)
        del self.content[slot]
        return slot

    def forget(self, number: int) -> None:
        """A block, evictable or in use, loses its content."""
        filled = sorted(self.content)
        if not filled:
            return
        slot = filled[number % len(filled)]
        for slots in (self.evictable, self.in_use):
            if slot in slots:
                slots.remove(slot)
        self.known.discard(slot)
        del self.content[slot]
        self._send("forget", slot)

    def disown(self, number: int) -> None:
        """A victim turned out to have lost its content before."""
        key = self.keys[number % len(self.keys)]
        if self.slot_of(key) is None:
            self._send("disown", key)

    def clear(self, number: int = 0) -> None:
        self.content.clear()
        self.evictable.clear()
        self.in_use.clear()
        self.known.clear()
        self._send("clear")

    def _send(self, call: str, *arguments: Any) -> None:
        self.log.append((call, *arguments))
        for policy in self.policies:
            getattr(policy, call)(*arguments)
