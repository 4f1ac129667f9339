# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A change of the live policy, in slices that fit into scheduler steps.

Copy what the pool holds; have the shadows' thread make a plan of it; carry the plan
out. The old policy chooses victims until the last slice is done. The work is in C++
(`csrc/eviction/hand_over.h`); here is only how much of it fits into a step. That is a
number of blocks, and a time: where the pool is large and its memory cold, a block takes
many times as long as in a small one.
"""

import time
from collections.abc import Callable
from enum import Enum, auto

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

COPIED_IN_A_STEP = 32768
"""Slots."""
PLACED_IN_A_STEP = 4096
"""Blocks."""
SECONDS_IN_A_STEP = 3e-4
"""After which a step begins no other piece of its work."""
_PIECE = 256
"""The least of a step's work that the time is looked at after."""


class _Phase(Enum):
    COPY = auto()
    PLAN = auto()
    PLACE = auto()


class HandOver:
    """One change of policy, under way.

    Args:
        queue: Fed to the shadows.
        candidate: Index of the one that is to be live.

    """

    def __init__(self, queue: PolicyFreeQueue, candidate: int):
        self.candidate = candidate
        self._queue = queue
        self._phase = _Phase.COPY
        self._copied = 0

    def advance(self) -> bool:
        """Do one slice.

        Returns:
            True when the new policy is in charge.

        Raises:
            RuntimeError: The new policy failed; the old one stays.

        """
        queue = self._queue
        if self._copied > 0 and not queue.handing_over:
            # The prefix cache was reset meanwhile.
            self._phase, self._copied = _Phase.COPY, 0
        if self._phase is _Phase.COPY:
            if _in_pieces(COPIED_IN_A_STEP, self._copy):
                queue.ask_for_plan(self.candidate)
                self._phase = _Phase.PLAN
        elif self._phase is _Phase.PLAN:
            if queue.begin_hand_over():
                self._phase = _Phase.PLACE
        else:
            return _in_pieces(PLACED_IN_A_STEP, queue.continue_hand_over)
        return False

    def abandon(self) -> None:
        """The old policy stays."""
        self._queue.abandon_hand_over()

    def _copy(self, number: int) -> bool:
        complete = self._queue.copy_residents(self._copied, number)
        self._copied += number
        return complete


def _in_pieces(budget: int, work: Callable[[int], bool]) -> bool:
    """Whether the work is done; at most so much of it, and for so long."""
    late = time.perf_counter() + SECONDS_IN_A_STEP
    piece = max(_PIECE, budget // 32)
    while budget > 0:
        if work(min(piece, budget)):
            return True
        budget -= piece
        if time.perf_counter() > late:
            break
    return False
