# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A cache of letters, for examples that are worked out by hand.

`play` says for each access what it led to: `hit`, `room` where no block had to go, or
the letter of the block that went.
"""

from tests.eviction.unpinned_cache import UnpinnedCache


class Letters(UnpinnedCache):
    def play(self, accesses: str) -> list[str]:
        return [self._outcome(ord(letter)) for letter in accesses]

    def _outcome(self, key: int) -> str:
        before = set(self._slots)
        if self.get(key):
            return "hit"
        gone = before - set(self._slots)
        return chr(gone.pop()) if gone else "room"
