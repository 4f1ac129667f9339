# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies of the lab, by sessions, nodes and samples, worked out by hand.

Slot n holds key n + 1; the blocks of a request are released tail first.
"""

from collections import Counter
from typing import Any

from vllm._eviction_C import make_policy


def run(policy: Any, serial: int, hits: range, computed: range) -> None:
    """A request hits some blocks, computes others, and ends."""
    for slot in hits:
        policy.take(slot)
    slots = [*hits, *computed]
    keys = [1 + slot for slot in slots]
    given = [*hits, *[None] * len(computed)]
    policy.admit(serial, keys, given, 0.0)
    policy.finish(serial, keys, 0.0)
    for slot in reversed(computed):
        policy.insert(slot, 1 + slot)
    for slot in reversed(hits):
        policy.reinsert(slot)


NONE = range(0)


# ---- Session LRU ----


def test_session_lru_evicts_the_whole_of_the_session_that_was_idle_longest():
    policy: Any = make_policy("session-lru", 9)
    run(policy, 1, NONE, range(3))  # A B C
    run(policy, 2, NONE, range(3, 6))  # D E F
    # The first goes on: it has all of A B C and G H, and the second is the idle one.
    run(policy, 3, range(3), range(6, 8))
    assert policy.peek(9) == [5, 4, 3, 7, 6, 2, 1, 0]
    assert policy.victim() == 5
    # A part of it is asked for. What is left goes first all the same.
    policy.take(3)
    assert policy.peek(9) == [4, 7, 6, 2, 1, 0]


def test_session_lru_takes_a_session_that_comes_back_for_alive():
    policy: Any = make_policy("session-lru", 6)
    run(policy, 1, NONE, range(3))
    run(policy, 2, NONE, range(3, 6))
    assert policy.victim() == 2
    run(policy, 3, range(2), range(2, 3))
    assert policy.peek(6) == [5, 4, 3, 2, 1, 0]


def test_session_lru_makes_no_session_of_a_common_system_prompt():
    policy: Any = make_policy("session-lru", 8)
    run(policy, 1, NONE, range(5))  # A is the system prompt: A B C D E
    run(policy, 2, range(1), range(5, 8))  # one of five blocks hit: A F G H
    # B to E are the idle session; A belongs to the second now.
    assert policy.peek(8) == [4, 3, 2, 1, 7, 6, 5, 0]


# ---- RandomCompute ----


def test_random_compute_weighs_cost_against_age():
    policy: Any = make_policy("random-compute", 4)
    policy.insert(0, 1, cost=3.0)
    policy.admit(1, [7], [None], 0.0)
    policy.insert(1, 2, cost=1.0)
    policy.insert(2, 3, cost=1.0)
    # Costs 3 for an age of 1, and 1 for 0, each age with one added.
    assert policy.peek(3) == [1, 2, 0]
    policy.admit(2, [8, 9], [None] * 2, 0.0)
    policy.insert(3, 4, cost=0.7)
    # 3/4, 1/3, 1/3, 0.7.
    assert policy.peek(4) == [1, 2, 3, 0]


def test_random_compute_sees_only_what_it_draws():
    """Of 64 blocks the cheapest, of which there is one, seldom goes first."""
    first: Counter[int] = Counter()
    for seed in range(200):
        policy: Any = make_policy("random-compute", 64, {"samples": 8, "seed": seed})
        for slot in range(64):
            policy.insert(slot, 1 + slot, cost=0.5 if slot == 9 else 1.0)
        first[policy.victim()] += 1
    assert 0 < first[9] < 60 and len(first) > 16


# ---- PartialCompute ----


def test_partial_compute_takes_chunks_from_the_beginning_of_a_node():
    policy: Any = make_policy("partial-compute", 8, {"chunk": 2})
    run(policy, 1, NONE, range(4))  # A B C D, at clock 4
    run(policy, 2, NONE, range(4, 7))  # E F G, at clock 7
    # The first node is older. After two of its blocks its score is what it was.
    assert policy.peek(8) == [0, 1, 2, 3, 4, 5, 6]
    assert [policy.victim(), policy.victim()] == [0, 1]
    # C and D are used again, at clock 9, so E F G is the older one.
    run(policy, 3, range(2, 4), NONE)
    assert policy.peek(8) == [4, 5, 6, 2, 3]
    # A chunk that was begun goes on, whatever happens meanwhile.
    assert policy.victim() == 4
    policy.admit(4, [10, 11], [None] * 2, 0.0)
    policy.insert(7, 8, cost=0.01)
    assert policy.peek(8) == [5, 7, 6, 2, 3]
