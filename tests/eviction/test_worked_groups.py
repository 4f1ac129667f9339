# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies by sessions, nodes and samples, worked out by hand.

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
        policy.insert(slot, 1 + slot, depth=16 * (1 + slot))
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


def released(policy: Any, *slots: int) -> None:
    """Released other than at the end of a request, for the first time."""
    for slot in slots:
        policy.insert(slot, 1 + slot, depth=16 * (1 + slot))


def test_partial_compute_makes_a_node_of_what_comes_back_tail_first():
    """Also where no end was told of: at a preemption, or when a release was put off."""
    policy: Any = make_policy("partial-compute", 8, {"chunk": 8})
    released(policy, 3, 2, 1, 0)
    assert policy.peek(4) == [0, 1, 2, 3]
    # 7 is deeper than 0: another request's.
    released(policy, 7, 6)
    assert policy.peek(6) == [0, 1, 2, 3, 6, 7]


def test_partial_compute_keeps_apart_what_two_requests_computed():
    """Both end in one step; of the first only the end was not there already."""
    policy: Any = make_policy("partial-compute", 8, {"chunk": 8})
    policy.admit(1, [7, 8], [None, None], 0.0)
    policy.finish(1, [7, 8], 0.0)
    released(policy, 7, 6)
    policy.finish(2, [1, 2], 0.0)
    released(policy, 1, 0)
    # One node would give 0 1 6 7.
    assert policy.peek(4) == [6, 7, 0, 1]


def test_partial_compute_makes_a_node_of_each_hole_that_was_filled():
    policy: Any = make_policy("partial-compute", 8, {"chunk": 8})
    released(policy, 5, 4, 3)
    # The request hits 3 4 5, computes 0 1 2 before them and 6 7 behind them.
    for slot in (3, 4, 5):
        policy.take(slot)
    keys = [1 + slot for slot in range(8)]
    policy.admit(1, keys, [None] * 3 + [3, 4, 5] + [None] * 2, 0.0)
    policy.finish(1, keys, 0.0)
    released(policy, 7, 6)
    for slot in (5, 4, 3):
        policy.reinsert(slot)
    released(policy, 2, 1, 0)
    # All of one age and one cost: the one that was released first gives first.
    assert policy.peek(8) == [6, 7, 3, 4, 5, 0, 1, 2]


def test_a_pin_is_no_use_of_a_node():
    policy: Any = make_policy("partial-compute", 4)
    released(policy, 1)
    policy.admit(1, [9], [None], 0.0)
    released(policy, 0)
    policy.take(1)  # by a connector
    policy.reinsert(1)
    assert policy.peek(2) == [1, 0]
    policy.take(1)
    policy.admit(2, [2], [1], 0.0)
    policy.reinsert(1)
    assert policy.peek(2) == [0, 1]


def test_partial_compute_with_a_small_queue_weighs_costs_of_what_was_hit():
    policy: Any = make_policy("partial-compute", 8, {"small_ratio": 0.5})
    run(policy, 1, NONE, range(2))  # A B
    run(policy, 2, range(2), range(2, 5))  # A B are hit; C D E are new
    # 3 of 5 blocks are in the small queue, then 2 of 4, then 1 of 3: less than half.
    assert policy.peek(8) == [4, 3, 0, 2, 1]
    # A pin moves a new block to the end of the small queue and not out of it.
    policy.take(4)
    policy.reinsert(4)
    assert policy.peek(8) == [3, 2, 0, 4, 1]
    # Hit before it was released for the first time.
    policy.admit(3, [6], [5], 0.0)
    released(policy, 5)
    assert policy.peek(8) == [3, 0, 2, 1, 4, 5]
