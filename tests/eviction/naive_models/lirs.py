# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Model of LIRS, with the paper's stack as a list."""

from tests.eviction.naive_models.base import Keys, NaiveModel, Slots


class NaiveLirs(NaiveModel):
    """SIGMETRICS'02. The stack's bottom is index 0; a ghost in it is its key, negative.

    Args:
        num_slots: Capacity.
        hir_ratio: Share of the HIR blocks, one block at least.
        ghost_ratio: Non-resident blocks in the stack, as a share of the capacity.
        first_are_lir: New blocks become LIR until that set is full, as in the paper.
            For comparisons only.

    """

    name = "lirs"

    def __init__(
        self,
        num_slots: int,
        hir_ratio: float = 0.01,
        ghost_ratio: float = 0.75,
        first_are_lir: bool = False,
    ):
        self.first_are_lir = first_are_lir
        self.lir_limit = num_slots - max(1, int(hir_ratio * num_slots))
        self.ghost_limit = int(ghost_ratio * num_slots)
        super().__init__(num_slots)

    def clear(self) -> None:
        super().clear()
        self.stack: list[int] = []
        self.queue: list[int] = []
        self.lir: set[int] = set()  # also in use
        self.recent: set[int] = set()  # in use, and would be in the stack
        self.hit: set[int] = set()  # used while they were in the stack

    def insert(self, slot: int, key: int) -> None:
        self.key[slot] = key
        filling = self.first_are_lir and len(self.lir) < self.lir_limit
        if -key in self.stack or filling:
            self.hit.add(slot)
        self.disown(key)
        self.recent.add(slot)
        self.reinsert(slot)

    def reinsert(self, slot: int) -> None:
        if slot in self.hit:
            self.lir.add(slot)
        if slot in self.lir | self.recent:
            self.stack.append(slot)
        if slot not in self.lir:
            self.queue.append(slot)
        self.hit.discard(slot)
        self.recent.discard(slot)
        while len(self.lir) > self.lir_limit and (bottom := self._bottom()) is not None:
            self._leave_stack(bottom)
            self.lir.discard(bottom)
            self.queue.append(bottom)

    def take(self, slot: int) -> None:
        if slot in self.stack:
            self.recent.add(slot)
        self._leave(slot)

    def forget(self, slot: int) -> None:
        self._leave(slot)
        self.key.pop(slot, None)
        for slots in (self.lir, self.recent, self.hit):
            slots.discard(slot)

    def disown(self, key: int) -> None:
        if -key in self.stack:
            self.stack.remove(-key)

    def admit(self, serial: int, keys: Keys, slots: Slots, now: float) -> None:
        for key, slot in zip(keys, slots, strict=True):
            if slot is None:
                if -key in self.stack:
                    self.ghost_hits += 1
                    self.stack.remove(-key)
                    self.stack.append(-key)
            elif slot in self.stack or slot in self.recent or slot not in self.key:
                self.hit.add(slot)
            elif slot not in self.queue:
                self.recent.add(slot)

    def victim(self) -> int | None:
        if self.queue:
            slot = self.queue[0]
            self.disown(self.key[slot])
            if slot in self.stack:
                self.stack[self.stack.index(slot)] = -self.key[slot]
            if len(self.ghosts()) > self.ghost_limit:
                self.disown(self.ghosts()[0])
        else:
            bottom = self._bottom()
            if bottom is None:
                return None
            slot = bottom
        self.forget(slot)
        return slot

    def ghosts(self) -> list[int]:
        return [-entry for entry in self.stack if entry < 0]

    def _bottom(self) -> int | None:
        return next((slot for slot in self.stack if slot in self.lir), None)

    def _leave(self, slot: int) -> None:
        if slot in self.queue:
            self.queue.remove(slot)
        if slot in self.stack:
            self._leave_stack(slot)

    def _leave_stack(self, slot: int) -> None:
        was_bottom = slot == self._bottom()
        self.stack.remove(slot)
        if was_bottom:  # prune
            while self.stack and self.stack[0] not in self.lir:
                self.stack.pop(0)
