# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which requests are the next turn of a session, and what that makes of its blocks."""

from typing import Any

import pytest
from vllm._eviction_C import make_policy

FIRST_TURN = [1, 2, 3, 4, 5, 6]
NEXT_TURN = [*FIRST_TURN, 7, 8]
ANOTHER = [1, 2, 9, 10]


class Pool:
    """Slots are keys; each request ends before the next one comes, 10 s later."""

    def __init__(self, num_groups: int = 1):
        self.policy: Any = make_policy("gittins", 100)
        self.groups = range(num_groups)
        self.known: set[int] = set()
        self.serial = 0

    def serve(self, path: list[int]) -> None:
        self.serial += 1
        now = 10.0 * self.serial
        paths = [[key + 50 * group for key in path] for group in self.groups]
        keys = [key for each in paths for key in each]
        hits = [key for key in keys if key in self.known]
        for slot in hits:
            self.policy.take(slot)
        slots = [key if key in self.known else None for key in keys]
        self.policy.admit(self.serial, keys, slots, now, len(path))
        self.policy.finish(self.serial, keys, now + 1.0)
        for each in paths:
            for slot in reversed(each):
                if slot in self.known:
                    self.policy.reinsert(slot)
                else:
                    self.policy.insert(slot, slot)
        self.known |= set(keys)
        self.policy.check()

    def learnt(self, key: int) -> tuple[int, int]:
        """Uses and branches."""
        values = {k: value for k, _, value in self.policy.snapshot()[0]}
        return values[key] >> 16 & 255, values[key] >> 24


@pytest.mark.parametrize("num_groups", [1, 2])
def test_the_next_turn_leaves_nobodys_path(num_groups: int):
    """New blocks are as those that they continue."""
    pool = Pool(num_groups)
    pool.serve(FIRST_TURN)
    pool.serve(NEXT_TURN)
    for group in pool.groups:
        assert [pool.learnt(50 * group + key) for key in (1, 6)] == [(2, 0), (2, 0)]
    assert pool.learnt(8) == (2, 0)


@pytest.mark.parametrize("num_groups", [1, 2])
def test_another_session_leaves_the_path_that_it_shares(num_groups: int):
    pool = Pool(num_groups)
    pool.serve(FIRST_TURN)
    pool.serve(ANOTHER)
    for group in pool.groups:
        assert [pool.learnt(50 * group + key) for key in (1, 2)] == [(2, 1), (2, 1)]
        assert pool.learnt(50 * group + 3) == (1, 0)
        assert pool.learnt(50 * group + 10) == (1, 0)


def test_a_turn_after_eviction_continues_the_session_too():
    pool = Pool()
    pool.serve(FIRST_TURN)
    for _ in FIRST_TURN:
        pool.known.discard(pool.policy.victim())
    pool.serve(NEXT_TURN)
    assert pool.policy.ghost_hits == 6
    assert [pool.learnt(key) for key in NEXT_TURN] == [(2, 0)] * 8


def test_the_deepest_block_of_a_session_goes_first():
    pool = Pool()
    pool.serve(FIRST_TURN)
    assert pool.policy.peek(6) == [6, 5, 4, 3, 2, 1]


def test_no_block_goes_before_what_hangs_below_it():
    pool = Pool()
    pool.serve(FIRST_TURN)
    pool.serve(ANOTHER)
    order = pool.policy.peek(8)
    for path in (FIRST_TURN, ANOTHER):
        places = [order.index(key) for key in path]
        assert places == sorted(places, reverse=True)
