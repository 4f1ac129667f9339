# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy as an ordinary cache: one block an access, and none in use.

So the papers and libcachesim have it. In the engine a block that is hit is taken,
and comes back when the request ends; here that is one moment. For S3-FIFO,
SIEVE and 2Q, where a hit does not renew a block, it must not happen at all.
"""

from typing import Any

from vllm._eviction_C import make_policy


class UnpinnedCache:
    """Counts hits.

    Args:
        name: A native policy.
        capacity: In blocks.
        parameters: Of the policy.
        model: Anything with the policy's interface to use in its place.

    """

    def __init__(
        self,
        name: str,
        capacity: int,
        parameters: dict[str, float] | None = None,
        model: Any = None,
    ):
        # Not `model or …`: a policy without blocks is false.
        if model is None:
            model = make_policy(name, capacity, parameters or {})
        self.policy = model
        self._moves = make_policy(name, 1).traits["moves_on_hit"]
        self._blank = list(range(capacity))
        self._slots: dict[int, int] = {}  # key -> slot
        self._keys: dict[int, int] = {}
        self._accesses = 0

    def get(self, key: int) -> bool:
        """Access a key; whether it was a hit."""
        self._accesses += 1
        policy, slot = self.policy, self._slots.get(key)
        if slot is None:
            # Before the victim is chosen, as in the papers; in the engine, after.
            policy.admit(self._accesses, [key], [None], 0.0)
            slot = self._blank.pop() if self._blank else self._evict()
            self._slots[key] = slot
            self._keys[slot] = key
            policy.insert(slot, key)
            return False
        if self._moves:
            policy.take(slot)
        policy.admit(self._accesses, [key], [slot], 0.0)
        if self._moves:
            policy.reinsert(slot)
        return True

    def _evict(self) -> int:
        slot = self.policy.victim()
        assert slot is not None
        del self._slots[self._keys.pop(slot)]
        return slot


def count_hits(
    name: str, capacity: int, trace: list[int], model: Any = None, **parameters: float
) -> int:
    cache = UnpinnedCache(name, capacity, parameters, model)
    return sum(map(cache.get, trace))
