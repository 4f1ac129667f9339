# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the engine believes that a block costs, and that its policies weigh it."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_pool import make_request
from real_scheduler import BLOCK_SIZE, make_scheduler, run_to_end
from vllm.logger import init_logger
from vllm.v1.core.sched.scheduler import Scheduler

from vllm.v1.core.eviction import recompute_cost as module
from vllm.v1.core.eviction.cost_file import Calibration, write_calibration
from vllm.v1.core.eviction.model_flops import flops_of
from vllm.v1.core.eviction.recompute_cost import (
    UNCALIBRATED_STEP,
    prefill_cost,
    recompute_cost,
)

LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}
LATENT = {
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
WINDOWED = {
    **LLAMA,
    "layer_types": ["sliding_attention", "full_attention"] * 16,
    "sliding_window": 1024,
}
FILE = Calibration(
    model="some/Model",
    device="a device",
    dtype="bfloat16",
    block_size=BLOCK_SIZE,
    date="2026-01-02T03:04:05+00:00",
    request_seconds=0.001,
    step_seconds=0.004,
    token_seconds=1e-5,
    per_token=0.25,
    per_window_token=0.5,
    window=64,
)


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> list[tuple[str, str]]:
    """Level and text of what the module logs. Of what is said once in a process, too:
    a new logger has said nothing yet, whatever ran before."""
    handler, logger = Lines(), init_logger(f"vllm.{request.node.name}")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    monkeypatch.setattr(module, "logger", logger)
    return handler.lines


def engine(config: Any, **eviction: Any) -> Any:
    """As much of a `VllmConfig` as is looked at."""
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_text_config=config),
        cache_config=SimpleNamespace(eviction_config=eviction),
    )


def costs(cost: Any) -> list[float]:
    return [cost(depth) for depth in (0, 16, 1024, 100_000)]


# ---- From the model's config ----


@pytest.mark.parametrize("form", [dict, lambda fields: SimpleNamespace(**fields)])
@pytest.mark.parametrize("config", [LLAMA, LATENT, WINDOWED])
def test_a_block_costs_what_its_operations_say(config, form, said):
    flops = flops_of(config)
    cost = recompute_cost(engine(form(config)))
    for depth in (0, 16, 1024, 100_000):
        looks = flops.per_depth * depth
        looks += flops.per_window_depth * min(depth, flops.window)
        assert cost(depth) == pytest.approx(1 + looks / flops.per_token, rel=1e-5)
    assert costs(cost)[-1] > 1.1
    assert said == []


def test_names_that_a_config_class_translates_are_understood():
    from transformers import GPT2Config

    gpt2 = GPT2Config()  # n_embd 768, n_layer 12, n_head 12; no n_inner
    # 12 * 768 * 768 weights a layer; 4 * 768 operations a token looked at.
    cost = recompute_cost(engine(gpt2))
    assert cost(1000) == pytest.approx(1 + 1000 / (6 * 768), rel=1e-5)


def test_an_unknown_kind_of_layer_is_a_dense_model_and_one_line(said):
    kinds = ["holographic_attention"] * 24 + ["full_attention"] * 8
    config = {**LLAMA, "layer_types": kinds}
    estimate = recompute_cost(engine(config))
    # A quarter of the layers looks back: 4 * 4096 operations a token looked at.
    weights = 4 * 4096**2 + 3 * 4096 * 14336
    assert estimate(1000) == pytest.approx(
        1 + 1000 * 0.25 * 4 * 4096 / (2 * weights), rel=1e-5
    )
    recompute_cost(engine(config))
    ((level, line),) = said
    assert level == "INFO" and "\n" not in line
    assert "holographic_attention" in line and "as of a dense model" in line


def test_a_config_that_tells_nothing_is_uniform_and_one_line(said):
    for config in ({}, {}, None):
        assert costs(recompute_cost(engine(config))) == [1.0] * 4
    ((level, line),) = said
    assert level == "INFO" and line.endswith("taken all the same.")


def test_without_a_model_all_blocks_cost_the_same():
    assert costs(recompute_cost(SimpleNamespace())) == [1.0] * 4
    assert prefill_cost(SimpleNamespace()).step_tokens == UNCALIBRATED_STEP


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FIELDS = [
    *LATENT,
    *WINDOWED,
    "head_dim",
    "mlp_only_layers",
    "model_type",
    "text_config",
]


@given(
    base=st.sampled_from([{}, LLAMA, LATENT, WINDOWED]),
    junk=st.dictionaries(st.sampled_from(sorted(set(FIELDS))), JUNK, max_size=4),
)
def test_no_config_raises(base: dict[str, Any], junk: dict[str, Any]):
    if junk.get("num_hidden_layers") == 10**400:
        junk["num_hidden_layers"] = 0  # would be counted one by one
    found = costs(recompute_cost(engine(base | junk)))
    assert found[0] == 1.0 and found == sorted(found)


# ---- From a file ----


def test_a_file_decides(tmp_path: Path, said):
    path = str(tmp_path / "cost.json")
    write_calibration(FILE, path)
    for _ in range(2):
        found = prefill_cost(engine(LLAMA, cost_file=path))
    assert found.step_tokens == pytest.approx(400)
    assert found.cost(16) == 1 + 16 * 0.75
    assert found.cost(100) == 1 + 100 * 0.25 + 64 * 0.5
    ((level, line),) = said
    assert level == "INFO" and "Model on a device" in line and path in line


@pytest.mark.parametrize("damage", ["missing", "{", "[]", "version"])
def test_a_damaged_file_is_one_warning_and_the_config_decides(
    tmp_path: Path, said, damage: str
):
    path = tmp_path / "cost.json"
    if damage == "version":
        write_calibration(FILE, str(path))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    elif damage != "missing":
        path.write_text(damage)
    for _ in range(2):
        found = prefill_cost(engine(LLAMA, cost_file=str(path)))
    assert costs(found.cost) == costs(recompute_cost(engine(LLAMA)))
    assert found.step_tokens == UNCALIBRATED_STEP
    ((level, line),) = said
    assert level == "WARNING" and "\n" not in line
    assert line.startswith(f"Cost file {path} is ignored: ")


# ---- Live ----


def serve(scheduler: Scheduler, num_blocks: int = 8) -> None:
    tokens = list(range(100, 100 + num_blocks * BLOCK_SIZE + 1))
    scheduler.add_request(make_request("one", tokens))
    run_to_end(scheduler)


def depths(scheduler: Scheduler) -> list[int]:
    """Of the cached blocks, tokens, the next to be evicted first."""
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    blocks = queue.get_all_free_blocks()
    return [b._block_hash_num_tokens for b in blocks if b.block_hash is not None]


SHALLOW_FIRST = [BLOCK_SIZE * (i + 1) for i in range(8)]


@pytest.mark.parametrize("weigher", ["gdsf", "asymcache"])
def test_of_equal_use_the_cheapest_block_goes_first(weigher: str, model: Path):
    scheduler = make_scheduler(model, weigher)
    serve(scheduler)
    assert depths(scheduler) == SHALLOW_FIRST


@pytest.mark.parametrize("weigher", ["gdsf", "asymcache"])
def test_the_cost_is_that_of_the_file(weigher: str, model: Path, tmp_path: Path):
    path = str(tmp_path / "flat.json")
    flat = {"per_token": 0.0, "per_window_token": 0.0}
    write_calibration(Calibration(**vars(FILE) | flat), path)
    scheduler = make_scheduler(model, weigher, eviction_config={"cost_file": path})
    serve(scheduler)
    # Where all cost the same the tail of a request goes first.
    assert depths(scheduler) == SHALLOW_FIRST[::-1]


def test_shadows_weigh_the_same_cost(model: Path, tmp_path: Path):
    path = str(tmp_path / "flat.json")
    flat = {"per_token": 0.0, "per_window_token": 0.0}
    write_calibration(Calibration(**vars(FILE) | flat), path)
    for extra, expected in (
        ({}, SHALLOW_FIRST),
        ({"cost_file": path}, SHALLOW_FIRST[::-1]),
    ):
        config = {"candidates": ["gdsf", "asymcache"], "threaded": False, **extra}
        scheduler = make_scheduler(model, "adaptive", eviction_config=config)
        serve(scheduler)
        assert depths(scheduler) == expected
        hooks = scheduler.eviction
        assert hooks.host.order(0) == hooks.queue.order()
        assert hooks.host.order(1) == hooks.queue.order()


@pytest.mark.parametrize("other", ["lru", "s3fifo", "gittins"])
def test_others_do_not_ask_for_it(other: str, model: Path, monkeypatch):
    def asked(vllm_config: Any) -> None:
        raise AssertionError("nobody weighs it")

    monkeypatch.setattr(module, "prefill_cost", asked)
    serve(make_scheduler(model, other))
