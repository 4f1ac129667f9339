# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The interface of a policy that is written in Python.

The policies that ship with the fork are C++ (`csrc/eviction/policies`); this is
for one of your own, to try an idea or to keep it out of the tree. It runs in the
live queue and in the lab, but not as a shadow of `adaptive`, because shadows run
without the interpreter lock.

Register it by name (`registry.register_policy`) or by an entry point of the group
`vllm.eviction_policies`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


class BlockInfo(NamedTuple):
    """What is known of a block when it becomes evictable.

    The live queue knows neither the parent nor the serial; they are zero there.

    Attributes:
        depth: Tokens from the start of the prompt to the end of the block.
        parent: Key of the block before it on the prefix path.
        cost: Cost of recomputing it, in units of one block at depth zero.
        serial: Number of the request that released it.

    """

    depth: int
    parent: int
    cost: float
    serial: int


@dataclass
class NoConfig:
    """The parameters of a policy that has none."""


class EvictionPolicy(ABC):
    """Decides who goes next among the evictable blocks.

    A slot is a block id, a key 64 bits that name the block's content. The free
    queue only calls what is allowed: `insert` with a slot that is not known,
    `reinsert` with a known one that was taken, `take` with an evictable one.
    What a policy returns is checked, and if it raises, LRU order takes over and
    serving goes on; `vllm:prefix_cache_eviction_policy_failures` counts that.

    Args:
        num_slots: Blocks in the pool; slots are below this.
        config: An instance of the class's `Config`, validated.

    """

    Config: ClassVar[type] = NoConfig
    """A dataclass of the parameters, each typed, with a default and its range
    (`Annotated[float, annotated_types.Interval(gt=0, lt=1)]`)."""
    summary: ClassVar[str] = "a policy without a summary"
    """One clause for the help text: what it evicts first."""

    def __init__(self, num_slots: int, config: Any):
        self.num_slots = num_slots
        self.config = config

    @abstractmethod
    def insert(self, slot: int, key: int, info: BlockInfo) -> None:
        """The block became evictable for the first time since it was filled."""

    @abstractmethod
    def reinsert(self, slot: int) -> None:
        """A known block that was in use is evictable again."""

    @abstractmethod
    def take(self, slot: int) -> None:
        """A request or a pin holds the block. No credit by itself."""

    @abstractmethod
    def victim(self) -> int:
        """Choose, remove and return the next block; forget the slot."""

    @abstractmethod
    def forget(self, slot: int) -> None:
        """A known block, evictable or taken, lost its content: no ghost."""

    @abstractmethod
    def peek(self, n: int) -> list[int]:
        """Return the next `n` victims in order and change nothing."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything; the prefix cache was reset."""

    # Optional; define those that you need.
    #
    # def admit(self, serial: int, keys: Sequence[int],
    #           slots: Sequence[int | None], now: float) -> int | None: ...
    #     A request was admitted: its keys in prefix order, and for each the slot
    #     that it was given, or None where it has to compute the block. Credit
    #     hits here, and look up ghosts: return how many of the keys were among
    #     them. A slot need not be known: a block that was filled and not released
    #     yet can be hit, and so can a second copy, which stays with the queue.
    # def finish(self, serial: int, cached_keys: Sequence[int], now: float) -> None: ...
    # def advance(self, now: float) -> None: ...
    # def disown(self, key: int) -> None: ...
    #     A victim had lost its content before: drop its ghost.
    # def num_ghosts(self) -> int: ...
    #     Its presence says that the policy keeps ghosts, at most `num_slots`;
    #     without it `disown` is not called.
    # def check(self) -> None: ...
    #     Raise if an invariant does not hold; called by tests.


class Fifo(EvictionPolicy):
    """First in, first out: an example, and the floor that others must beat."""

    summary = "the block that was filled first"

    def __init__(self, num_slots: int, config: Any):
        super().__init__(num_slots, config)
        self._arrival: dict[int, int] = {}  # slot -> number of its arrival
        self._evictable: dict[int, int] = {}  # the same, evictable ones only
        self._arrivals = 0

    def insert(self, slot: int, key: int, info: BlockInfo) -> None:
        self._arrival[slot] = self._evictable[slot] = self._arrivals
        self._arrivals += 1

    def reinsert(self, slot: int) -> None:
        self._evictable[slot] = self._arrival[slot]

    def take(self, slot: int) -> None:
        del self._evictable[slot]

    def victim(self) -> int:
        slot = self.peek(1)[0]
        self.forget(slot)
        return slot

    def forget(self, slot: int) -> None:
        self._evictable.pop(slot, None)
        del self._arrival[slot]

    def peek(self, n: int) -> list[int]:
        ordered: Sequence[int] = sorted(
            self._evictable, key=self._evictable.__getitem__
        )
        return list(ordered[:n])

    def clear(self) -> None:
        self._arrival.clear()
        self._evictable.clear()
