# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Learned policies of libCacheSim beside ours, for comparison only."""

import json

import pytest

from tests.harness.traffic import trace_of
from vllm.benchmarks.eviction.oracles import replay_oracle
from vllm.benchmarks.eviction.peers import replay_peer
from vllm.benchmarks.eviction.policy_list import PEERS
from vllm.v1.core.eviction.registry import policy_names

peers = pytest.mark.parametrize("name", PEERS)


@peers
def test_a_peer_is_no_policy_of_the_engine(name: str):
    assert name not in policy_names(offline=True)


@peers
def test_with_room_for_all_it_hits_what_an_infinite_cache_does(name: str):
    trace = trace_of((0, [1, 2, 3], 1), (1, [1, 2, 4], 1), (2, [1, 2, 3, 5], 1))
    result = replay_peer(trace, 10, name)
    assert result.hits.tolist() == [0, 2, 3]
    assert result.hits.tolist() == replay_oracle(trace, 10, "infinite").hits.tolist()
    assert result.evictions == 0


@peers
def test_a_hit_is_the_longest_prefix_that_is_there(name: str):
    # Room for two: the tail is asked for first, so the beginning is what stays.
    trace = trace_of((0, [1, 2, 3, 4], 1), (1, [1, 2, 3, 4], 1))
    result = replay_peer(trace, 2, name)
    assert result.hits[1] <= 2 and result.evictions > 0


@peers
def test_its_rows_say_that_they_are_offline(lab, write, capsys, name: str):
    lines = [
        {"timestamp": at, "input_length": 1030, "output_length": 1, "hash_ids": ids}
        for at, ids in enumerate([[1, 2, 8], [1, 2, 9]])
    ]
    words = ["--capacity", 9, "--policies", f"lru,{name}", "--json", "-"]
    assert lab("replay", write(*lines), *words) == 0
    lru, peer = json.loads(capsys.readouterr().out)
    assert (lru["offline"], peer["offline"]) == (False, True)
    assert peer["block_hit_rate"] == lru["block_hit_rate"] == 0.5
    assert peer["mean_wait_s"] is None and peer["ghost_hits"] is None


@peers
def test_a_peer_has_no_parameters(lab, write, capsys, name: str):
    words = ["--capacity", 9, "--policies", f"{name}:seed=1"]
    assert lab("replay", write({"a": 1}), *words) == 2
    assert f"{name} has no parameters" in capsys.readouterr().err
