# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`partial-compute` gives up at once what one step of prefill fills again, unless it is
told otherwise; the engine, its shadows and the simulator mean the same by that."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from real_scheduler import BLOCK_SIZE
from vllm._eviction_C import HoleRule, RecomputeCost

from tests.holes.holey_scheduler import HoleyScheduler, prompt
from vllm.benchmarks.eviction.cost_models import UNIFORM
from vllm.benchmarks.eviction.replay import Candidate, _simulator
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.trace import Trace
from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import native_parameters

NAME = "partial-compute"
STEP = 6  # blocks
NUM_BLOCKS = 40  # the null block is one of them
# Blocks of the prompts that are served. The second takes one of the first's.
LENGTHS = (NUM_BLOCKS - 4, 3)


# ---- Parameters ----


@pytest.mark.parametrize(("tokens", "chunk"), [(8192, 512), (100, 6), (10, 1)])
def test_by_default_a_chunk_is_a_step_of_prefill(tokens: int, chunk: int) -> None:
    rule = HoleRule.of_tokens(RecomputeCost(), 16, tokens, 0.0)
    assert rule.budget == chunk
    for config in ({}, {"chunk": None}):
        assert parse_config(NAME, config, rule).chunk == chunk
        assert native_parameters(NAME, config, rule)["chunk"] == chunk
    assert parse_config(NAME, {"chunk": 5}, rule).chunk == 5


def test_without_hole_filling_the_core_decides() -> None:
    assert parse_config(NAME, {}).chunk is None
    assert "chunk" not in native_parameters(NAME, {})


def test_other_policies_do_not_care() -> None:
    rule = HoleRule(RecomputeCost(), 16, 7, 0.0)
    config = {"samples": 4}
    parsed = parse_config("random-compute", config, rule)
    assert parsed == parse_config("random-compute", config)


# ---- Engine, shadow and simulator ----


def trace() -> Trace:
    return Trace(
        block_size=BLOCK_SIZE,
        arrivals=np.array([0.0, 60.0]),
        prompt_tokens=np.array([BLOCK_SIZE * n + 1 for n in LENGTHS], np.uint32),
        output_tokens=np.ones(2, np.uint32),
        offsets=np.cumsum([0, *LENGTHS]).astype(np.uint64),
        keys=np.arange(1, 1 + sum(LENGTHS), dtype=np.uint64),
        sessions=np.full(2, -1),
    )


def chunk_of(snapshot: Any) -> int:
    """One block of it is gone; a snapshot says how many are left."""
    _, _, scalars = snapshot
    return 1 + int(scalars[2])


@pytest.mark.parametrize(
    ("config", "tokens", "filling", "chunk"),
    [
        ({}, STEP * BLOCK_SIZE, "auto", STEP),
        ({}, 8 * BLOCK_SIZE + 3, "auto", 8),
        ({"chunk": 5}, STEP * BLOCK_SIZE, "auto", 5),
        ({}, STEP * BLOCK_SIZE, "off", 32),
    ],
)
def test_live_queue_shadow_and_simulator_mean_the_same(
    model: Path,
    config: dict[str, Any],
    tokens: int,
    filling: Literal["auto", "off"],
    chunk: int,
) -> None:
    candidates = [{"name": NAME, **config}, "lru"]
    managed = {"candidates": candidates, "dry_run": True, "threaded": False}
    snapshots = []
    for policy, given in ((NAME, config), ("adaptive", managed)):
        engine = HoleyScheduler(
            model,
            policy,
            num_blocks=NUM_BLOCKS,
            max_tokens_in_step=tokens,
            hole_filling=filling,
            eviction_config=given,
        )
        for family, length in enumerate(LENGTHS):
            engine.serve(f"{family}", prompt(length, family))
        snapshots.append(engine.pool.free_block_queue.snapshot())
    snapshots.append(engine.scheduler.eviction.host.snapshot(0))
    service = Service(prefill_budget=tokens, hole_filling=filling)
    rule = service.hole_rule(UNIFORM, BLOCK_SIZE)
    candidate = Candidate(NAME, config)
    simulator = _simulator(trace(), NUM_BLOCKS - 1, candidate, None, UNIFORM, rule)
    simulator.run_until(math.inf)
    snapshots.append(simulator.snapshot())
    assert [chunk_of(each) for each in snapshots] == [chunk] * 4
