# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""When holes are filled, and which requests are served as plain prefixes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from real_pool import make_request
from real_scheduler import BLOCK_SIZE, make_scheduler
from vllm._eviction_C import HoleRule, RecomputeCost

from tests.holes.holey_scheduler import HoleyScheduler, prompt
from vllm.v1.core.eviction import hole_limits
from vllm.v1.core.eviction.hole_limits import make_hole_filler

TOKENS = prompt(8)


@pytest.mark.parametrize(
    ("policy", "mode", "fills"),
    [
        ("partial-compute", "auto", True),
        ("random-compute", "auto", True),
        ("lru", "auto", False),
        ("s3fifo", "auto", False),
        ("partial-compute", "off", False),
        ("lru", "require", True),
        ("gittins", "require", True),
    ],
)
def test_by_default_holes_are_filled_for_policies_that_leave_them(
    model: Path, policy: str, mode: str, fills: bool
) -> None:
    scheduler = make_scheduler(model, policy, hole_filling=mode)
    assert (scheduler.kv_cache_manager.hole_filler is not None) == fills


@pytest.mark.parametrize(
    ("candidates", "fills"),
    [(["lru", "s3fifo"], False), (["lru", {"name": "partial-compute"}], True)],
)
def test_adaptive_fills_them_for_its_candidates(
    model: Path, candidates: list, fills: bool
) -> None:
    scheduler = make_scheduler(
        model, "adaptive", eviction_config={"candidates": candidates}
    )
    assert (scheduler.kv_cache_manager.hole_filler is not None) == fills
    scheduler.shutdown()


def test_several_groups_prevent_it(model: Path) -> None:
    scheduler = make_scheduler(model, "partial-compute", num_groups=2)
    assert scheduler.kv_cache_manager.hole_filler is None


def test_what_is_required_and_impossible_is_refused_in_one_line(model: Path) -> None:
    with pytest.raises(ValueError) as refusal:
        make_scheduler(model, "lru", num_groups=2, hole_filling="require")
    assert str(refusal.value) == (
        "--hole-filling require: not with several KV-cache groups (a hybrid model)."
    )


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("odd")])
def test_a_fault_stops_the_engine_only_where_holes_are_required(
    model: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(scheduler) -> None:
        raise error

    monkeypatch.setattr(hole_limits, "make_hole_filler", fails)
    scheduler = make_scheduler(model, "partial-compute")
    assert scheduler.kv_cache_manager.hole_filler is None
    with pytest.raises(type(error), match="odd"):
        make_scheduler(model, "partial-compute", hole_filling="require")


def with_a_connector(config) -> None:
    config.kv_transfer_config = object()


def with_eagle(config) -> None:
    config.speculative_config = SimpleNamespace(use_eagle=lambda: True)


def with_context_parallelism(config) -> None:
    config.parallel_config.decode_context_parallel_size = 2


def without_chunks(config) -> None:
    config.scheduler_config.enable_chunked_prefill = False


def with_pooling(config) -> None:
    config.model_config.runner_type = "pooling"


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (with_a_connector, "KV connector"),
        (with_eagle, "EAGLE"),
        (with_context_parallelism, "context parallelism"),
        (without_chunks, "chunked prefill off"),
        (with_pooling, "pooling"),
    ],
)
def test_each_obstacle_is_named(model: Path, spoil, named: str) -> None:
    scheduler = make_scheduler(model, "lru", hole_filling="require")
    config = scheduler.vllm_config
    changed = SimpleNamespace(
        **{
            name: SimpleNamespace(**vars(getattr(config, name)))
            for name in ("model_config", "parallel_config", "scheduler_config")
        },
        cache_config=config.cache_config,
        speculative_config=None,
        kv_transfer_config=None,
        num_lookahead_tokens=0,
        use_v2_model_runner=False,
    )
    changed.model_config.is_encoder_decoder = False
    spoil(changed)
    with pytest.raises(ValueError, match=named):
        make_hole_filler(
            SimpleNamespace(
                vllm_config=changed, kv_cache_manager=scheduler.kv_cache_manager
            )
        )


def test_model_runner_v2_prevents_it(model: Path) -> None:
    """It adds up on the device what was computed, and would lose its place."""
    scheduler = make_scheduler(model, "lru")
    scheduler.vllm_config.cache_config.hole_filling = "require"
    stub = SimpleNamespace(
        kv_cache_manager=scheduler.kv_cache_manager,
        vllm_config=_Shadowed(scheduler.vllm_config, use_v2_model_runner=True),
    )
    with pytest.raises(ValueError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        make_hole_filler(stub)


class _Shadowed:
    """An object with some attributes replaced."""

    def __init__(self, under, **over):
        self._under, self._over = under, over

    def __getattr__(self, name: str):
        over = object.__getattribute__(self, "_over")
        return over[name] if name in over else getattr(self._under, name)


@pytest.mark.parametrize(
    "unfit",
    [
        {"resumable": True},
        {"mm_features": [object()]},
        {"prompt_embeds": torch.zeros(1)},
        {"skip_reading_prefix_cache": True},
    ],
)
def test_requests_that_cannot_jump_are_served_as_a_plain_prefix(
    model: Path, unfit: dict
) -> None:
    engine = HoleyScheduler(model)
    engine.filler.rule = HoleRule(RecomputeCost(), BLOCK_SIZE, budget=16, step=0.0)
    engine.serve("first", TOKENS)
    engine.make_holes(TOKENS, [2])
    request = make_request("again", TOKENS)
    plan = engine.filler._plan(request, 2 * BLOCK_SIZE, len(TOKENS) - 2 * BLOCK_SIZE)
    assert plan
    for name, value in unfit.items():
        setattr(request, name, value)
    assert not engine.filler._plan(request, 2 * BLOCK_SIZE, 20)
