# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Same trace, same result, to the block; whatever else the engine is asked to do."""

import time

import pytest
from vllm.v1.core.sched import scheduler as scheduler_module

from tests.harness.traffic import traffic
from vllm.benchmarks.eviction.harness import run_adaptive, run_static
from vllm.benchmarks.eviction.replay import Candidate
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine
from vllm.v1.core.eviction.rules import Discounted

pytestmark = pytest.mark.needs_upstream

CANDIDATES = [Candidate("lru"), Candidate("s3fifo", {"promotion": 2}), Candidate("arc")]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_two_runs_agree_to_the_block(policy: str) -> None:
    trace, num_blocks = traffic("even", 300.0)
    first = run_static(trace, num_blocks, Candidate(policy))
    assert first == run_static(trace, num_blocks, Candidate(policy))
    assert 0 < first.hit_blocks < first.query_blocks


def test_two_adaptive_runs_take_the_same_decisions() -> None:
    trace, num_blocks = traffic("agentic", 300.0)
    worse_first = list(reversed(CANDIDATES))  # so that there is a switch
    first = run_adaptive(trace, num_blocks, worse_first, Discounted)
    assert first == run_adaptive(trace, num_blocks, worse_first, Discounted)
    assert first.switches


@pytest.mark.parametrize("policy", ["lru", "s3fifo"])
def test_statistics_change_nothing(policy: str) -> None:
    trace, num_blocks = traffic("even", 300.0)
    with_stats = run_static(trace, num_blocks, Candidate(policy), log_stats=True)
    assert with_stats == run_static(trace, num_blocks, Candidate(policy))


def test_statistics_change_nothing_under_adaptive() -> None:
    trace, num_blocks = traffic("even", 300.0)
    with_stats = run_adaptive(trace, num_blocks, CANDIDATES, Discounted, log_stats=True)
    assert with_stats == run_adaptive(trace, num_blocks, CANDIDATES, Discounted)


def test_a_run_in_pieces_is_the_same_run() -> None:
    trace, num_blocks = traffic("even", 300.0)
    pieces = VirtualEngine(trace, num_blocks, {"eviction_policy": "s3fifo"})
    for seconds in (10.0, 10.0, 137.5, float("inf")):
        pieces.run(seconds)
        assert pieces.next_time >= seconds
    whole = run_static(trace, num_blocks, Candidate("s3fifo"))
    assert pieces.result() == whole


def test_the_scheduler_gets_its_own_clock_back() -> None:
    trace, num_blocks = traffic("even", 300.0)
    engine = VirtualEngine(trace, num_blocks)
    engine.run(20.0)
    assert engine.clock.now < 20.0
    assert scheduler_module.time is time
