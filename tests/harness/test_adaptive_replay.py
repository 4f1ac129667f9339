# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`adaptive` in the real scheduler against `adaptive` in the simulator.

The manager of the engine and the lab's replay share the rules and the shadows; how
they feed, ask and hand over is written twice. Decisions whose candidates are close
may differ, and then so do the caches; the hit rates must not.
"""

from collections.abc import Callable

import pytest

from tests.harness.traffic import traffic
from vllm.benchmarks.eviction.harness import run_adaptive, run_static
from vllm.benchmarks.eviction.replay import Candidate, replay_adaptive
from vllm.v1.core.eviction.rules import Discounted, Paper, Rule, Window

pytestmark = pytest.mark.needs_upstream

CANDIDATES = [Candidate("lru"), Candidate("s3fifo", {"promotion": 2})]


def _window(num_candidates: int, now: float) -> Rule:
    return Window(num_candidates, now, window=120.0, first_window=60.0)


def _paper(num_candidates: int, now: float) -> Rule:
    return Paper(num_candidates, now, window=120.0)


@pytest.mark.parametrize(
    "make_rule", [Discounted, _window, _paper], ids=["discounted", "window", "paper"]
)
@pytest.mark.parametrize(
    ("name", "seconds"),
    [("even", 600.0), pytest.param("ASASAS", 7200.0, marks=pytest.mark.slow)],
)
def test_engine_and_simulator_agree_on_adaptive(
    name: str, seconds: float, make_rule: Callable[[int, float], Rule]
) -> None:
    trace, num_blocks = traffic(name, seconds)
    live = run_adaptive(trace, num_blocks, CANDIDATES, make_rule)
    simulated = replay_adaptive(trace, num_blocks, CANDIDATES, make_rule)
    print(f"live {live.hit_rate:.4f} {live.switches}")
    print(f"simulated {simulated.hit_rate:.4f} {simulated.switches}")
    # The engine decides at the first step that is due, some milliseconds late each
    # time: by the end it may be one decision behind.
    assert 0 <= len(simulated.decisions) - len(live.decisions) <= 1 + seconds / 1000
    assert len(live.decisions) > 3
    assert live.query_blocks == simulated.query_blocks
    assert live.hit_rate == pytest.approx(simulated.hit_rate, abs=0.005)


def test_a_switch_goes_to_the_policy_that_is_better_on_this_traffic() -> None:
    trace, num_blocks = traffic("agentic", 300.0)
    worse_first = list(reversed(CANDIDATES))
    lru, s3fifo = (run_static(trace, num_blocks, each) for each in CANDIDATES)
    adaptive = run_adaptive(trace, num_blocks, worse_first, Discounted)
    assert s3fifo.hit_rate < adaptive.hit_rate <= lru.hit_rate + 0.01
    assert [name for _, name in adaptive.switches][-1:] == ["lru"]
    assert len(adaptive.decisions) == len({each.end for each in adaptive.decisions})
