# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy that writes down what it is told. Registered as `test-listener`."""

from dataclasses import dataclass
from typing import Any

from vllm.v1.core.eviction.policy import Fifo


@dataclass(frozen=True)
class Admission:
    """One call of `admit`."""

    serial: int
    keys: tuple[int, ...]
    slots: tuple[int | None, ...]
    now: float


class Listener(Fifo):
    """First in, first out; the last one built is in `built`."""

    built: "Listener"

    def __init__(self, num_slots: int, config: Any):
        super().__init__(num_slots, config)
        self.admissions: list[Admission] = []
        self.finished: list[tuple[int, tuple[int, ...]]] = []
        self.ticks: list[float] = []
        self.key_of: dict[int, int] = {}
        Listener.built = self

    def insert(self, slot: int, key: int, info: Any) -> None:
        super().insert(slot, key, info)
        self.key_of[slot] = key

    def admit(self, serial: int, keys: list, slots: list, now: float) -> None:
        self.admissions.append(Admission(serial, tuple(keys), tuple(slots), now))

    def finish(self, serial: int, keys: list, now: float) -> None:
        self.finished.append((serial, tuple(keys)))

    def advance(self, now: float) -> None:
        self.ticks.append(now)
