# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""After a pause all segments have passed edges of their age, and no step may wait for
all: each call works off 1,024 passings, those of an edge before those of the next."""

from typing import Any

from vllm._eviction_C import gittins, make_policy

from tests.eviction.gittins.naive_model import EDGES, NUM_BUCKETS

SEGMENTS = 1500
AT_ONCE = 1024
CALLS = -(-SEGMENTS * (NUM_BUCKETS - 1) // AT_ONCE)
"""Until every segment has passed every edge."""


def policy_with_segments() -> Any:
    """Of one block each, released at second 0."""
    policy: Any = make_policy("gittins", 4000)
    for serial in range(SEGMENTS):
        key = serial + 1
        policy.admit(serial, [key], [None], 0.0)
        policy.finish(serial, [key], 0.0)
        policy.insert(serial, key)
    return policy


def age_buckets(policy: Any) -> list[int]:
    """Of the segments, the oldest first; read from the end of what is handed over."""
    _, ghosts, scalars = policy.snapshot()
    number, num_links = int(scalars[3]), int(scalars[4])
    width = 16 + gittins.NUM_FEATURES
    end = len(scalars) - 4 * num_links - 2 * len(ghosts[0])
    rows = scalars[end - width * number : end]
    return [int(rows[at + 12]) for at in range(0, len(rows), width)]


def test_a_call_works_off_a_part():
    policy = policy_with_segments()
    assert age_buckets(policy) == [0] * SEGMENTS
    policy.advance(1e6)
    assert age_buckets(policy) == [1] * AT_ONCE + [0] * (SEGMENTS - AT_ONCE)
    for _ in range(CALLS - 1):
        policy.advance(1e6)
    assert age_buckets(policy) == [NUM_BUCKETS - 1] * SEGMENTS
    policy.check()


def test_what_is_learnt_is_what_would_have_been_learnt_without_the_pause():
    paused, steady = policy_with_segments(), policy_with_segments()
    for _ in range(CALLS):
        paused.advance(1e6)
    for edge in EDGES[1:]:
        steady.advance(edge * (1 + 1e-9))
        steady.advance(edge * (1 + 1e-9))
    assert paused.model() == steady.model()
    assert paused.peek(SEGMENTS) == steady.peek(SEGMENTS)


def test_what_returns_meanwhile_returns_at_its_age():
    policy = policy_with_segments()
    last = SEGMENTS - 1
    policy.take(last)
    policy.admit(SEGMENTS, [SEGMENTS], [last], 1e6)
    hits = policy.report()["hits"]
    assert hits[NUM_BUCKETS - 1] == 1 and sum(hits) == 1
    policy.check()
