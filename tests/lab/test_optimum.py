# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The oracles that weigh costs: the optimum is one, and `belady-compute` is close.

Prompts alone, none of which ends with a block, as in `test_oracles`.
"""

import json
import subprocess
import sys
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.word_traces import BLOCK, trace_of
from vllm.benchmarks.eviction import ilp
from vllm.benchmarks.eviction.cost_models import LINEAR, UNIFORM, CostModel
from vllm.benchmarks.eviction.grid import run_one, savings
from vllm.benchmarks.eviction.oracles import replay_oracle
from vllm.benchmarks.eviction.policy_list import parse_policies
from vllm.benchmarks.eviction.service import Service
from vllm.v1.core.eviction.registry import get_policy, policy_names

STEEP = CostModel("steep", 0.05)
BENT = CostModel("bent", 0.01, 0.2, 2 * BLOCK)
COSTS = [UNIFORM, STEEP, BENT, LINEAR]
words = st.text("ab", min_size=1, max_size=3)
few = st.lists(words, min_size=1, max_size=6)


def best_of_all(paths, capacity, cost, prefix):
    """Most that hits can save over every choice of what to keep."""

    def worth(path, kept):
        saved = 0.0
        for i, block in enumerate(path):
            if block in kept:
                saved += float(cost(np.array((i + 1) * BLOCK)))
            elif prefix:
                break
        return saved

    @cache
    def best(at, kept):
        if at == len(paths):
            return 0.0
        path = [paths[at][: i + 1] for i in range(len(paths[at]))]
        there = kept | frozenset(path)
        size = min(capacity, len(there))
        return worth(path, kept) + max(
            best(at + 1, frozenset(some)) for some in combinations(there, size)
        )

    return best(0, frozenset())


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.name)
@pytest.mark.parametrize("name", ["ilp", "ilp-prefix"])
@given(paths=few, capacity=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_optimum_is_that_of_an_exhaustive_search(name, cost, paths, capacity):
    found = replay_oracle(trace_of(paths), capacity, name, cost)
    best = best_of_all(paths, capacity, cost, prefix=name == "ilp-prefix")
    assert found.saved == pytest.approx(best)


@given(paths=st.lists(words, min_size=1, max_size=25), capacity=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_where_all_blocks_cost_the_same_the_optimum_is_beladys(paths, capacity):
    trace = trace_of(paths)
    belady = replay_oracle(trace, capacity, "belady")
    for name in ("ilp", "ilp-prefix"):
        assert replay_oracle(trace, capacity, name).hit_blocks == belady.hit_blocks


@given(paths=st.lists(words, max_size=60), capacity=st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_where_all_blocks_cost_the_same_belady_compute_is_belady(paths, capacity):
    trace = trace_of(paths)
    plain = replay_oracle(trace, capacity, "belady")
    weighed = replay_oracle(trace, capacity, "belady-compute")
    assert weighed.hits.tolist() == plain.hits.tolist()
    assert weighed.evictions == plain.evictions
    assert weighed.saved == plain.hit_blocks


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.name)
@given(
    paths=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=30),
    room=st.integers(0, 8),
)
@settings(max_examples=40, deadline=None)
def test_the_optimum_bounds_the_oracles_and_the_policies(cost, paths, room):
    trace = trace_of(paths, seconds=5.0)
    capacity = max(map(len, paths)) + 1 + room
    most = replay_oracle(trace, capacity, "ilp", cost)
    prefixes = replay_oracle(trace, capacity, "ilp-prefix", cost)
    weighed = replay_oracle(trace, capacity, "belady-compute", cost)
    slack = 1e-6 * (1 + most.saved)
    assert prefixes.saved <= most.saved + slack
    assert weighed.saved <= most.saved + slack
    bound = savings(trace, prefixes, cost) + 1e-9
    assert savings(trace, replay_oracle(trace, capacity, "belady"), cost) <= bound
    for policy in parse_policies(",".join(policy_names())):
        found = run_one(
            trace, capacity, policy, None, cost, Service(hole_filling="off")
        )
        assert savings(trace, found, cost) <= bound
        if not get_policy(policy.name).fills_holes:
            continue
        found = run_one(trace, capacity, policy, None, cost, Service(hole_step=0.0))
        assert found.saved <= most.saved + slack


def test_what_is_dear_is_kept_though_it_is_needed_later():
    # Room for one block. Belady keeps a, which is needed first and costs 1.8; b behind
    # it costs 2.6 and is needed a request later.
    paths = ["ab", "a", "ab"]
    assert replay_oracle(trace_of(paths), 1, "belady").hits.tolist() == [0, 1, 1]
    steep = CostModel("steeper", 0.5)
    found = replay_oracle(trace_of(["ab", "c", "ab"]), 1, "belady-compute", steep)
    assert found.hits.tolist() == [0, 0, 1]
    assert found.saved == 1 + 0.5 * 2 * BLOCK


def test_a_hole_is_a_run_of_blocks_that_a_request_computes():
    # Only the deepest block of abc is kept: ab is a hole before it.
    dear = CostModel("dear", 1000.0)
    for name in ("belady-compute", "ilp"):
        found = replay_oracle(trace_of(["abc", "abc"]), 1, name, dear)
        assert found.hits.tolist() == [0, 1]
        # The first request computes all of its blocks: one hole of three.
        assert (found.holes, found.hole_blocks) == (2, 5)


def test_the_score_that_the_paper_prints_would_save_less_than_belady():
    """`belady_compute.h` divides by the cost where the paper multiplies."""
    rng = np.random.default_rng(1)
    saved = dict.fromkeys(("product", "belady", "belady-compute", "ilp"), 0.0)
    for _ in range(40):
        lengths = rng.integers(1, 5, size=40)
        paths = ["".join(rng.choice(list("abc"), size=n)) for n in lengths]
        trace = trace_of(paths)
        saved["product"] += product_saves(paths, 12, LINEAR)
        prefixes = LINEAR.of_prefixes(5, BLOCK)
        saved["belady"] += prefixes[replay_oracle(trace, 12, "belady").hits].sum()
        for name in ("belady-compute", "ilp"):
            saved[name] += replay_oracle(trace, 12, name, LINEAR).saved
    assert list(saved) == sorted(saved, key=saved.__getitem__)
    assert saved["belady-compute"] > 0.98 * saved["ilp"]


def product_saves(paths, capacity, cost):
    """Evict the highest cost times time until the next use."""
    saved, kept = 0.0, set()
    for at, path in enumerate(paths):
        blocks = [path[: i + 1] for i in range(len(path))]
        saved += sum(
            float(cost(np.array(len(block) * BLOCK)))
            for block in blocks
            if block in kept
        )
        kept |= set(blocks)

        def score(block, at=at):
            ahead = (i for i in range(at + 1, len(paths)) if paths[i].startswith(block))
            wait = next(ahead, None)
            if wait is None:
                return float("inf")
            return float(cost(np.array(len(block) * BLOCK))) * (wait - at)

        while len(kept) > capacity:
            kept.remove(max(kept, key=score))
    return saved


def test_a_key_at_two_depths_is_refused():
    trace = trace_of(["ab", "c"])
    trace.keys[2] = trace.keys[1]
    with pytest.raises(ValueError, match="one key has two depths"):
        replay_oracle(trace, 2, "belady-compute", LINEAR)


def test_a_trace_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(ilp, "MAX_REUSES", 3)
    with pytest.raises(ValueError, match="reuses blocks 4 times, more than 3"):
        replay_oracle(trace_of(["ab", "ab", "ab"]), 2, "ilp")


def test_the_solver_writes_nothing_between_the_figures(tmp_path):
    """In a process of its own, because the solver prints its version once."""
    line = {"timestamp": 0, "input_length": 1025, "output_length": 1}
    path = tmp_path / "trace.jsonl"
    path.write_text(2 * (json.dumps(line | {"hash_ids": [1, 2, 3]}) + "\n"))
    program = (
        "import argparse, sys; from vllm.benchmarks.eviction import cli;"
        "parser = argparse.ArgumentParser(); cli.add_cli_args(parser);"
        "sys.exit(cli.main(parser.parse_args(sys.argv[1:])))"
    )
    words = ["replay", path, "--capacity", "9", "--policies", "ilp", "--json", "-"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, check=True
    )
    [row] = json.loads(ran.stdout)
    assert row["hit_blocks"] == 2
