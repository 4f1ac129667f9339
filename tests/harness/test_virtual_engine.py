# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What vLLM does with a request, worked out by hand, and that the harness shows it.

Blocks of four tokens. Unless a test says otherwise a request takes one second, and
then a second for each token that it answers.
"""

import numpy as np
import pytest
from vllm._eviction_C import ServiceModel

from tests.harness.traffic import trace_of
from vllm.benchmarks.eviction.harness import run_static
from vllm.benchmarks.eviction.replay import Candidate, Result, replay
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine

pytestmark = pytest.mark.needs_upstream

LRU = Candidate("lru")
SERVICE = {"base": 1.0, "prefill_rate": 1e9, "decode_seconds": 1.0}


def both(trace: Trace, num_blocks: int, max_running: int = 64) -> Result:
    """Run the trace live and in the simulator, which must see the same."""
    service = ServiceModel(**SERVICE, max_running=max_running)
    live = run_static(trace, num_blocks, LRU, service)
    simulated = replay(trace, num_blocks, LRU, service)
    assert live.mean_wait == pytest.approx(simulated.mean_wait, abs=1e-6)
    simulated.mean_wait = live.mean_wait
    assert live == simulated
    return live


def test_a_prompt_of_full_blocks_gets_its_last_block_anew() -> None:
    # The last token must be computed, and blocks are hit whole.
    trace = trace_of((0, [1, 2], 0), (10, [1, 2], 0))
    result = both(trace, 10)
    assert (result.query_blocks, result.hit_blocks) == (4, 1)


def test_a_partial_block_is_neither_asked_for_nor_found() -> None:
    # Eleven tokens, and one sampled that would fill the third block if it had KV.
    trace = trace_of((0, [1, 2, 3], 1), (10, [1, 2, 3], 1), (20, [1, 2, 3, 4], 0))
    result = both(trace, 10)
    assert (result.query_blocks, result.hit_blocks) == (2 + 2 + 4, 0 + 2 + 2)


def test_the_next_turn_finds_the_answer_but_for_its_last_token() -> None:
    # The answer fills block 2 and, with its last token, block 3.
    trace = trace_of((0, [1, 2, 3], 8), (20, [1, 2, 3, 4], 0))
    result = both(trace, 10)
    assert (result.query_blocks, result.hit_blocks) == (1 + 4, 2)


@pytest.mark.parametrize(
    ("arrival", "hits"),
    [
        pytest.param(4.9, 1, id="while the second block fills"),
        pytest.param(5.1, 2, id="when it is full"),
        pytest.param(9.1, 3, id="when the third is full"),
    ],
)
def test_an_answer_is_found_as_its_blocks_fill(arrival: float, hits: int) -> None:
    # Token j is sampled at second 1 + j and computed by the step that starts then:
    # block 2 is full with token 4, at second 5.
    trace = trace_of((0, [1, 2, 3, 4], 12), (arrival, [1, 2, 3, 4, 5], 0))
    assert both(trace, 10).hit_blocks == hits


def test_blocks_in_use_are_not_evicted() -> None:
    # Five blocks hold the first request; the second waits until it is over.
    trace = trace_of((0, [1, 2, 3, 4], 0), (1, [5, 6], 0), (9, [1, 2, 3], 0))
    result = both(trace, 5)
    assert result.requests == 3
    assert result.mean_wait == pytest.approx((0 + 1 + 0) / 3)


def test_the_tail_of_a_request_is_evicted_first() -> None:
    turns = (0, [1, 2, 3, 4], 0), (10, [5, 6, 7, 8], 0), (20, [1, 2, 3, 4, 9], 0)
    result = both(trace_of(*turns), 6)
    # Two blocks were free; for the other two blocks 4 and 3 made room.
    assert result.hit_blocks == 2


def test_requests_are_admitted_in_order_of_arrival() -> None:
    # The small third request would fit; vLLM does not let it pass the second.
    trace = trace_of((0, [1, 2, 3], 0), (0.5, [4, 5, 6, 7], 0), (0.6, [8], 0))
    result = both(trace, 5)
    assert result.mean_wait == pytest.approx((0 + 1.5 + 1.4) / 3)


def test_no_more_run_than_may_run() -> None:
    trace = trace_of((0, [1], 0), (0, [2], 0), (0, [3], 0))
    assert both(trace, 50, max_running=3).mean_wait == 0
    assert both(trace, 50, max_running=1).mean_wait == pytest.approx((0 + 2 + 4) / 3)


def test_a_request_that_is_longer_than_the_pool_is_refused() -> None:
    trace = trace_of((0, [1, 2, 3, 4], 2), (1, [1, 2, 3], 2), (5, [5, 6, 7, 8, 9], 1))
    result = both(trace, 4)
    assert (result.requests, result.refused) == (2, 1)


@pytest.mark.parametrize("policy", ["lru", "s3fifo"])
def test_a_preempted_request_ends_and_counts_once(policy: str) -> None:
    # Two prompts of two blocks fit into six; their answers of three blocks do not.
    trace = trace_of((0, [1, 2, 3, 4, 5], 11), (0.5, [11, 12, 13, 14, 15], 11))
    engine = VirtualEngine(
        trace, 6, {"eviction_policy": policy}, ServiceModel(**SERVICE)
    )
    engine.run()
    result = engine.result()
    assert result.requests == 2
    assert result.query_blocks == 4
    assert result.hit_blocks == 0
    # The second waits for the end of the first, at second 12, and has lost blocks.
    assert engine.clock.now > 13
    assert not engine.scheduler.running and not engine.scheduler.waiting
    pool = engine.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == 6


def test_a_trace_without_keys_for_its_answers_is_not_accepted() -> None:
    trace = trace_of((0, [1, 2], 0), (0, [3], 0))
    trace.output_tokens = np.array([1, 9], dtype=np.uint32)
    with pytest.raises(ValueError, match="Request 1 of the trace has 1 keys.*3 blocks"):
        VirtualEngine(trace, 10)


def test_a_bad_policy_is_one_line() -> None:
    with pytest.raises(ValueError, match="Did you mean 's3fifo'"):
        VirtualEngine(trace_of((0, [1], 0)), 10, {"eviction_policy": "s3fifi"})
