# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The pool model under LRU, written from the description in pool.h.

Everything is a dict or a list that is searched, and a prefix is tried from the
longest down, so that there is little to get wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class NaiveHoles:
    """Which cached runs behind a miss are worth it.

    Attributes:
        budget: Blocks that a step computes.
        step: What a further step costs.

    """

    budget: int
    step: float

    def steps(self, blocks: int) -> int:
        return -(-blocks // self.budget)

    def kept(
        self, cached: list[bool], length: int, cost: Callable[[int], float]
    ) -> list[int]:
        """Which blocks are used, of those that may be.

        Args:
            cached: For each of them, whether it is there.
            length: Blocks of the whole prompt.
            cost: Of a block by its place.

        """
        flags = [*cached, False]
        prefix = flags.index(False)
        kept = list(range(prefix))
        starts = [i for i in range(prefix, len(flags)) if flags[i] and not flags[i - 1]]
        for start in starts:
            end = flags.index(False, start)
            behind = next((other for other in starts if other >= end), length)
            done = kept[-1] + 1 if kept else 0
            more = self.steps(start - done) + self.steps(behind - end)
            more -= self.steps(behind - done)
            if more <= 0 or sum(map(cost, range(start, end))) > self.step * more:
                kept += range(start, end)
        return kept


@dataclass
class Held:
    """What a request holds of one group."""

    first: int  # place of slots[0] in the request
    filled: int  # places that have been given their content
    slots: list[int]


class NaivePool:
    """Same calls as `vllm._eviction_C.Pool`.

    Args:
        num_blocks: Blocks, all groups together.
        windows: Blocks of its window for each group, 0 for none.
        holes: How they are filled, with one group without a window.
        cost: Of a block by its place in the prompt.

    """

    def __init__(
        self,
        num_blocks: int,
        windows: list[int],
        holes: NaiveHoles | None = None,
        cost: Callable[[int], float] = lambda place: 1.0,
    ):
        self.windows = windows
        self.holes = holes if windows == [0] else None
        self.cost = cost
        self.content: dict[int, int] = {}
        self.filled_at: dict[int, int] = {}  # slot -> when, to tell the oldest
        self.held: dict[int, int] = {}
        self.running: dict[int, list[Held]] = {}
        # Free blocks: without content, second copies, and the rest.
        self.blank = list(range(num_blocks))
        self.spare: list[int] = []
        self.order: list[int] = []
        self._clock = 0

    @property
    def num_free(self) -> int:
        return len(self.blank) + len(self.spare) + len(self.order)

    def holders(self, key: int) -> list[int]:
        """Slots with this content, the oldest first."""
        slots = [slot for slot, held in self.content.items() if held == key]
        return sorted(slots, key=lambda slot: self.filled_at[slot])

    def resident(self, key: int) -> bool:
        return bool(self.holders(key))

    def lookup(self, keys: list[int], limit: int) -> int:
        return len(self._hits(keys, limit))

    def _hits(self, keys: list[int], limit: int) -> list[int]:
        """Places of the prompt."""
        if self.holes is None:
            return list(range(self._prefix(keys, limit)))
        cached = [self.resident(key) for key in keys[:limit]]
        return self.holes.kept(cached, limit + 1, self.cost)

    def _prefix(self, keys: list[int], limit: int) -> int:
        length = len(keys) // len(self.windows)
        return max(
            hits
            for hits in range(min(length, limit) + 1)
            if all(
                self.resident(keys[group * length + i])
                for group, window in enumerate(self.windows)
                for i in self._needed(window, hits)
            )
        )

    def admit(
        self, serial: int, keys: list[int], limit: int, num_blocks: int, now: float
    ) -> tuple[int, bool, int, int, float]:
        places = self._hits(keys, limit)
        missed = set(range(max(places, default=0))) - set(places)
        starts = [place for place in missed if place - 1 not in missed]
        hits, saved = len(places), float(sum(map(self.cost, places)))
        if missed:
            fits = self._admit_with_holes(serial, keys, places, num_blocks)
        else:
            fits = self._admit_prefix(serial, keys, hits, num_blocks)
        return hits, fits, len(starts), len(missed), saved

    def _admit_with_holes(
        self, serial: int, keys: list[int], places: list[int], num_blocks: int
    ) -> bool:
        found = {place: self.holders(keys[place])[0] for place in places}
        num_blocks = max(num_blocks, len(keys))
        missing = num_blocks - len(found)
        if missing + sum(s not in self.held for s in found.values()) > self.num_free:
            return False
        for slot in found.values():
            self._hold(slot)
        fresh = self._allocate(missing)
        slots = [
            found[place] if place in found else fresh.pop(0)
            for place in range(num_blocks)
        ]
        for place, key in enumerate(keys):
            if place not in found:
                self._clock += 1
                self.content[slots[place]] = key
                self.filled_at[slots[place]] = self._clock
        self.running[serial] = [Held(0, len(keys), slots)]
        return True

    def _admit_prefix(
        self, serial: int, keys: list[int], hits: int, num_blocks: int
    ) -> bool:
        length = len(keys) // len(self.windows)
        num_blocks = max(num_blocks, length)
        found = [
            [
                self.holders(keys[group * length + i])[0]
                for i in self._needed(window, hits)
            ]
            for group, window in enumerate(self.windows)
        ]
        missing = num_blocks - hits
        wanted = sum(min(missing, window or missing) for window in self.windows)
        wanted += sum(slot not in self.held for slots in found for slot in slots)
        if wanted > self.num_free:
            return False
        request = []
        for slots, window in zip(found, self.windows, strict=True):
            for slot in slots:
                self._hold(slot)
            request.append(Held(max(0, hits - (window or hits)), hits, slots))
        for run, window in zip(request, self.windows, strict=True):
            start, end = hits, num_blocks
            if window:
                start = max(hits, length - window)
                end = min(num_blocks, max(start + window, length))
            if start > hits:  # the hits fall out of the window during the prefill
                self._release_all(run)
                run.first = run.filled = start
            run.slots += self._allocate(max(0, end - start))
        self.running[serial] = request
        self._fill(request, keys)
        return True

    def grow(self, serial: int, num_blocks: int, keys: list[int] | None = None) -> None:
        if serial not in self.running:
            return
        for group, (run, window) in enumerate(
            zip(self.running[serial], self.windows, strict=True)
        ):
            while run.first + len(run.slots) < num_blocks and self.num_free:
                run.slots += self._allocate(1)
                if window and len(run.slots) > window + 1:
                    self._release(run.slots.pop(0))
                    run.first += 1
            self._fill([run], self._of_group(keys or [], group))

    def finish(self, serial: int, keys: list[int], now: float) -> None:
        self.grow(serial, len(keys) // len(self.windows), keys)
        for run in self.running.pop(serial, []):
            self._release_all(run)

    def reset(self) -> None:
        self.content.clear()
        self.blank += sorted([*self.spare, *self.order])
        self.spare, self.order = [], []
        for request in self.running.values():
            for run in request:
                run.filled = run.first + len(run.slots)

    def _needed(self, window: int, hits: int) -> range:
        return range(max(0, hits - window) if window else 0, hits)

    def _of_group(self, keys: list[int], group: int) -> list[int]:
        length = len(keys) // len(self.windows)
        return keys[group * length : (group + 1) * length]

    def _fill(self, runs: list[Held], keys: list[int]) -> None:
        length = len(keys) // len(runs)
        for group, run in enumerate(runs):
            for place in range(max(run.filled, run.first), length):
                if place - run.first < len(run.slots):
                    self._clock += 1
                    slot = run.slots[place - run.first]
                    self.content[slot] = keys[group * length + place]
                    self.filled_at[slot] = self._clock
                    run.filled = place + 1

    def _allocate(self, n: int) -> list[int]:
        """All are chosen before the first loses its content."""
        chosen: list[int] = []
        while len(chosen) < n:
            if self.blank:
                chosen.append(self.blank.pop(0))
            elif self.spare:
                slot = self.spare.pop(0)
                others = self.holders(self.content[slot])
                if any(other != slot and other not in chosen for other in others):
                    chosen.append(slot)
                else:  # the last copy by now
                    self.order.append(slot)
            else:
                chosen.append(self.order.pop(0))
        for slot in chosen:
            self.content.pop(slot, None)
            self.held[slot] = 1
        return chosen

    def _hold(self, slot: int) -> None:
        for queue in (self.blank, self.spare, self.order):
            if slot in queue:
                queue.remove(slot)
        self.held[slot] = self.held.get(slot, 0) + 1

    def _release_all(self, run: Held) -> None:
        """Tail first."""
        while run.slots:
            self._release(run.slots.pop())

    def _release(self, slot: int) -> None:
        self.held[slot] -= 1
        if self.held[slot]:
            return
        del self.held[slot]
        if slot not in self.content:
            self.blank.insert(0, slot)
        elif len(self.holders(self.content[slot])) > 1:
            self.spare.append(slot)
        else:
            self.order.append(slot)
