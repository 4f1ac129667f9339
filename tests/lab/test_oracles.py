# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The oracles: no choice of victims beats Belady, and no policy does.

Where this is a bound: prompts alone, none of which ends with a block. What a request
computes whether it is cached or not is no use to Belady; a policy may drop it and be
given it back.
"""

import json
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.word_traces import BLOCK, trace_of
from vllm.benchmarks.eviction.grid import run_one
from vllm.benchmarks.eviction.oracles import replay_oracle
from vllm.benchmarks.eviction.policy_list import ORACLES, PEERS, parse_policies
from vllm.benchmarks.eviction.service import Service
from vllm.v1.core.eviction.config import validate_eviction
from vllm.v1.core.eviction.registry import policy_names


def best_of_all(paths, capacity):
    """Most prefix hits over every choice of what to keep, closed or not."""

    @cache
    def best(at, kept):
        if at == len(paths):
            return 0
        path = [paths[at][: i + 1] for i in range(len(paths[at]))]
        hits = next((i for i, block in enumerate(path) if block not in kept), len(path))
        there = kept | frozenset(path)
        # To keep less than fits never helps.
        size = min(capacity, len(there))
        return hits + max(
            best(at + 1, frozenset(some)) for some in combinations(there, size)
        )

    return best(0, frozenset())


def belady(paths, capacity, **how):
    return replay_oracle(trace_of(paths, **how), capacity, "belady")


words = st.text("ab", min_size=1, max_size=3)


@given(st.lists(st.sampled_from("abcde"), max_size=9), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_no_eviction_of_single_blocks_beats_belady(paths, capacity):
    assert belady(paths, capacity).hit_blocks == best_of_all(paths, capacity)


@given(st.lists(words, max_size=6), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_no_eviction_of_prefixes_beats_belady_though_it_is_leaf_closed(paths, capacity):
    assert belady(paths, capacity).hit_blocks == best_of_all(paths, capacity)


@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize("seconds", [0.01, 5.0], ids=["overlapping", "one by one"])
@given(
    paths=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=60),
    room=st.integers(0, 12),
)
@settings(max_examples=25, deadline=None)
def test_no_policy_on_the_pool_model_beats_belady(name, seconds, paths, room):
    trace = trace_of(paths, seconds=seconds)
    capacity = max(map(len, paths)) + 1 + room
    [policy] = parse_policies(name)
    # With holes filled, hits are no prefixes: the optimum bounds those (test_optimum).
    found = run_one(trace, capacity, policy, None, service=Service(hole_filling="off"))
    most = replay_oracle(trace, capacity, "belady")
    assert found.query_blocks == most.query_blocks
    assert found.hit_blocks <= most.hit_blocks
    assert most.hit_blocks <= replay_oracle(trace, capacity, "infinite").hit_blocks


def test_belady_bypasses_what_is_used_later_than_all_others():
    # Who must keep b has no hit here. Belady drops b twice, without having kept it.
    result = belady(["a", "b", "a", "b", "a"], 1)
    assert (result.hit_blocks, result.evictions) == (2, 2)


def test_of_one_request_the_deepest_goes_first():
    # Two of abc fit: the first two are found again, not the last two.
    assert belady(["abc", "abc"], 2).hit_blocks == 2


@given(st.lists(words, min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_belady_with_room_for_all_is_the_infinite_cache(paths):
    trace = trace_of(paths)
    room = len(np.unique(trace.keys))
    most = replay_oracle(trace, room, "belady")
    assert most.evictions == 0
    assert most.hit_blocks == replay_oracle(trace, 1, "infinite").hit_blocks


@pytest.mark.parametrize("name", ORACLES)
def test_the_block_with_the_last_prompt_token_is_never_a_hit(name):
    trace = trace_of(["ab", "ab"], prompt_tail=0)
    result = replay_oracle(trace, 9, name)
    assert (result.hit_blocks, result.query_blocks) == (1, 4)


def test_outputs_are_found_by_the_next_turn():
    trace = trace_of(["ab", "abc"])
    trace.prompt_tokens[0] = BLOCK + 1  # b is the first request's output
    trace.output_tokens[0] = BLOCK
    result = replay_oracle(trace, 3, "belady")
    assert (result.hit_blocks, result.query_blocks) == (2, 4)


def test_many_uses_of_few_blocks_do_not_disturb_the_order():
    # So many that the heap drops, more than once, what uses have left behind.
    paths = ["a", "b", "c"] * 2000
    assert belady(paths, 2).hit_blocks == sum(1 for _ in simulate_min(paths, 2))


def simulate_min(paths, capacity):
    """Yield the hits of Belady with bypass on single blocks, by looking ahead."""
    kept: set[str] = set()
    for at, block in enumerate(paths):
        if block in kept:
            yield at
        kept.add(block)
        if len(kept) > capacity:
            ahead = paths[at + 1 : at + 10]
            kept.remove(
                max(kept, key=lambda b: ahead.index(b) if b in ahead else len(paths))
            )


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_is_no_policy_of_the_engine(name):
    assert name not in policy_names()
    with pytest.raises(ValueError, match="Unknown eviction policy"):
        validate_eviction(name, {}, None)


def test_a_key_with_two_parents_is_one_line(lab, write, capsys):
    lines = [
        {"timestamp": at, "input_length": 1025, "output_length": 1, "hash_ids": ids}
        for at, ids in enumerate([[1, 2, 8], [3, 2, 9], [1, 2, 8], [3, 2, 9]])
    ]
    words = ["--capacity", 3, "--policies", "lru,belady", "--csv", "-"]
    assert lab("replay", write(*lines), *words) == 2
    out, error = capsys.readouterr()
    assert "after 1 of 2 replays: belady needs a trace whose keys name" in error
    assert out.splitlines()[1].startswith("3,lru,False,")


def test_the_tables_mark_the_oracles(lab, capsys):
    assert lab("policies", "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)
    offline = [row["policy"] for row in rows if row["offline"]]
    assert offline == ["session-lru", *ORACLES, *PEERS]
