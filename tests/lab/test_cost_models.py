# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a block costs: operations counted by hand, and the compute-savings ratio."""

import json
from pathlib import Path

import numpy as np
import pytest

from vllm.benchmarks.eviction.cost_models import (
    LINEAR,
    UNIFORM,
    CostModel,
    parse_cost,
)
from vllm.v1.core.eviction.cost_file import Calibration, write_calibration
from vllm.v1.core.eviction.model_flops import Flops, flops_of

QWEN3_CODER = Path(__file__).parent / "configs" / "qwen3_coder_30b.json"


def test_qwen3_coder_30b_by_hand():
    """The paper's model: 48 layers, 32 query and 4 key heads of 128, 8 of 128 experts.

    Weights of a layer: queries and output 2 * 2048 * 4096, keys and values
    2 * 2048 * 512, router 2048 * 128, experts 8 * 3 * 2048 * 768; 56,885,248 in all.
    With the embeddings and the head, 2 * 151,936 * 2048, which do not count here, they
    are the 3.3 billion that its makers name.
    """
    flops = flops_of(json.loads(QWEN3_CODER.read_text()))
    weights = 16_777_216 + 2_097_152 + 262_144 + 37_748_736
    assert weights == 56_885_248
    assert flops.per_token == 2 * 48 * weights == 5_460_983_808
    # Two products, of 32 heads of 128: 2 * 2 * 4096 a layer and token looked at.
    assert flops.per_depth == 48 * 16_384 == 786_432
    assert (flops.per_window_depth, flops.window) == (0, 0)
    assert (48 * weights + 2 * 151_936 * 2048) / 1e9 == pytest.approx(3.35, abs=0.01)


def test_a_block_at_the_end_of_qwen3_coders_context_costs_38_times_the_first():
    cost = parse_cost(str(QWEN3_CODER))
    assert cost.per_token == pytest.approx(1.4401e-4, rel=1e-4)
    assert cost(np.array([262_144]))[0] == pytest.approx(38.751, abs=1e-3)


LLAMA = {  # Llama 3 8B: dense, 8 key heads
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}
DEEPSEEK = {  # DeepSeek V2 Lite: latent attention, the first layer dense
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
GPT_OSS = {  # gpt-oss 20b: every other layer has a window
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "sliding_window": 128,
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # 32 * (4096 * 128 * 80 + 3 * 4096 * 14336) weights
        (LLAMA, Flops(13_958_643_712, 524_288, 0, 0)),
        # 27 * (2048*16*192 + 2048*576 + 512*16*256 + 16*128*2048)
        # + 3*2048*10944 + 26 * (2048*64 + 3*2048*8*1408)
        (DEEPSEEK, Flops(4_483_186_688, 276_480, 0, 0)),
        # 24 * (2880 * 64 * 144 + 2880 * 32 + 3 * 2880 * 4 * 2880)
        (GPT_OSS, Flops(6_056_017_920, 196_608, 196_608, 128)),
        ({"text_config": LLAMA}, Flops(13_958_643_712, 524_288, 0, 0)),
    ],
    ids=["dense, grouped queries", "latent, experts", "windows, experts", "nested"],
)
def test_published_models_by_hand(config, expected):
    assert flops_of(config) == expected


@pytest.mark.parametrize(
    ("fields", "windowed"),
    [
        ({"sliding_window": 4096}, 32),  # Mistral 7B
        ({"sliding_window": 4096, "use_sliding_window": False}, 0),  # Qwen2
        (
            {
                "sliding_window": 4096,
                "use_sliding_window": True,
                "max_window_layers": 28,
            },
            4,
        ),
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, 27),  # Gemma 3
        ({"sliding_window": 4096, "model_type": "gemma2"}, 16),
        ({"sliding_window": None}, 0),
    ],
)
def test_layers_with_a_window(fields, windowed):
    flops = flops_of({**LLAMA, **fields})
    assert flops.per_window_depth == windowed * 16_384
    assert flops.per_depth == (32 - windowed) * 16_384
    assert flops.window == (fields["sliding_window"] if windowed else 0)


def test_a_window_bends_the_cost():
    cost = CostModel("bent", 0.0, 0.5, 64)
    assert cost(np.array([32, 64, 128])).tolist() == [17, 33, 33]


@pytest.mark.parametrize("cost", [UNIFORM, LINEAR, parse_cost(str(QWEN3_CODER))])
def test_the_core_is_told_the_same_cost(cost):
    native = cost.native()
    for depth in (16, 4096, 262_144):
        assert native(depth) == pytest.approx(cost(np.array([depth]))[0], rel=1e-6)


def request(at, ids):
    return {
        "timestamp": at,
        "input_length": 512 * len(ids),
        "output_length": 1,
        "hash_ids": ids,
    }


GOOD = [request(0, [1, 2]), request(9000, [1, 3])]


@pytest.mark.parametrize(
    ("cost", "savings"),
    [
        ("uniform", 32 / 128),
        # Of 64 blocks of 16 tokens the first 32 are found: 1 + 16 i for the i-th.
        ("linear", (32 + 16 * 528) / (2 * (64 + 16 * 2080))),
    ],
)
@pytest.mark.parametrize("command", ["replay", "sweep"])
def test_savings_are_those_of_the_hits_over_all_prompt_blocks(
    lab, write, capsys, command, cost, savings
):
    words = ["--block-size", "16", "--policies", "lru,belady", "--cost", cost]
    size = ["--capacity", 200] if command == "replay" else ["--workers", 1]
    assert lab(command, write(*GOOD), *words, *size, "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)
    row = next(row for row in rows if row["capacity"] >= 96)
    assert row["compute_savings"] == pytest.approx(savings)
    assert row["block_hit_rate"] == 32 / 128
    assert row["token_hit_rate"] == 512 / 2048


def test_without_a_cost_there_are_no_savings(lab, write, capsys):
    words = ["--capacity", 9, "--policies", "lru,s3fifo", "--json", "-"]
    assert lab("replay", write(*GOOD), *words) == 0
    lru, s3fifo = json.loads(capsys.readouterr().out)
    assert "compute_savings" not in lru
    # Only a policy with ghosts counts how often it was wrong.
    assert (lru["ghost_hits"], s3fifo["ghost_hits"]) == (None, 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file"),
        ("{", "cannot be read"),
        ("[]", "is no JSON object"),
        ("{}", "has no 'num_hidden_layers'"),
        ('{"format": "vllm-eviction-cost", "version": 2}', "its version is 2, not 1."),
        ('{"format": "vllm-eviction-cost", "version": 1}', "its model is None."),
        ('{"num_hidden_layers": "x"}', "must be a whole number"),
        (json.dumps({**LLAMA, "num_experts": 8}), "no 'num_experts_per_tok'"),
        (
            json.dumps({**LLAMA, "layer_types": ["linear_attention"] * 32}),
            "layers of type 'linear_attention'",
        ),
    ],
)
def test_a_fault_is_one_line(lab, write, tmp_path, capsys, content, why):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    words = ["--capacity", 9, "--policies", "lru", "--cost", path]
    assert lab("replay", write(*GOOD), *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"vllm bench eviction: error: --cost is {path}: ")
    assert why in error


def test_a_calibration_is_a_cost(lab, write, tmp_path, capsys):
    path = str(tmp_path / "cost.json")
    measured = Calibration(
        model="models/Some-1B",
        device="a device",
        dtype="float32",
        block_size=16,
        date="2026-01-02T03:04:05+00:00",
        request_seconds=0.001,
        step_seconds=0.002,
        token_seconds=0.0001,
        per_token=1.0,
    )
    write_calibration(measured, path)
    assert parse_cost(path) == CostModel("Some-1B on a device", 1.0, step_tokens=20.0)
    words = [
        "--block-size",
        "16",
        "--policies",
        "lru,belady-compute",
        "--capacity",
        200,
    ]
    savings = []
    for cost in (path, "linear"):
        assert lab("replay", write(*GOOD), *words, "--cost", cost, "--json", "-") == 0
        rows = json.loads(capsys.readouterr().out)
        savings.append([row["compute_savings"] for row in rows])
    assert savings[0] == savings[1] and savings[0][0] > 0


@pytest.mark.parametrize("policy", ["gdsf", "partial-compute", "adaptive"])
def test_the_engines_file_of_costs_is_not_for_the_lab(lab, write, capsys, policy):
    words = ["--capacity", 9, "--policies", f"{policy}:cost_file=x.json"]
    assert lab("replay", write(*GOOD), *words) == 2
    assert "cost_file is the engine's, here give --cost." in capsys.readouterr().err


def test_belady_compute_needs_a_cost(lab, write, capsys):
    words = ["--capacity", 9, "--policies", "belady-compute"]
    assert lab("replay", write(*GOOD), *words) == 2
    assert "belady-compute needs --cost" in capsys.readouterr().err
