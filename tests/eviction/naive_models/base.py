# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What all naive models share."""

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
        self.depth: dict[int, int] = {}  # of a slot's last content, tokens
        self.cost: dict[int, float] = {}  # of a slot's last content
        self.ghost_hits = 0

    def describe(self, slot: int, depth: int, cost: float) -> None:
        """Tell of the block that is inserted next."""
        self.depth[slot] = depth
        self.cost[slot] = cost

    def disown(self, key: int) -> None:
        """A model without ghosts has none to drop."""

    def finish(self, serial: int, keys: Keys, now: float) -> None:
        """A model without requests does not wait for their ends."""

    def ghosts(self) -> list[int]:
        return []
