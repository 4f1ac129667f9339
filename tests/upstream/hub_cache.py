# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""An offline Hugging Face cache that holds nothing but configurations.

Upstream's core tests build a ``ModelConfig`` for a model they name and never
load its weights. With the network off, a folder with the ``config.json`` of each
such model turns what would be a network failure into a test of the scheduler.
The configurations come from transformers' own classes: their defaults are those
of the small models of each family, and what the tests read (layers, heads,
context) is set where the defaults differ.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Any 40 hex digits do: the cache is only ever asked for what ``main`` is.
REVISION = "0" * 40


def _opt_125m() -> Any:
    from transformers import OPTConfig

    return OPTConfig(architectures=["OPTForCausalLM"], dtype="float16")


def _opt_350m() -> Any:
    from transformers import OPTConfig

    return OPTConfig(
        architectures=["OPTForCausalLM"],
        dtype="float16",
        hidden_size=1024,
        word_embed_proj_dim=512,
        ffn_dim=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        do_layer_norm_before=False,
    )


def _qwen3_600m() -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
    )


def _qwen15_7b() -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        dtype="bfloat16",
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        max_position_embeddings=32768,
    )


def _llava_15_7b() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

    text = LlamaConfig(vocab_size=32064, max_position_embeddings=4096)
    vision = CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
        projection_dim=768,
    )
    return LlavaConfig(
        architectures=["LlavaForConditionalGeneration"],
        dtype="float16",
        text_config=text,
        vision_config=vision,
        image_token_index=32000,
    )


MODELS: dict[str, Callable[[], Any]] = {
    "Qwen/Qwen1.5-7B": _qwen15_7b,
    "Qwen/Qwen3-0.6B": _qwen3_600m,
    "facebook/opt-125m": _opt_125m,
    "facebook/opt-350m": _opt_350m,
    "llava-hf/llava-1.5-7b-hf": _llava_15_7b,
}


def make_hub_cache(home: Path) -> Path:
    """Fills a Hugging Face home; does nothing for a model that is there.

    Args:
        home: what ``HF_HOME`` will name.

    Returns:
        ``home``.
    """
    for name, make_config in MODELS.items():
        repository = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / REVISION
        if (repository / "refs" / "main").exists():
            continue
        snapshot.mkdir(parents=True, exist_ok=True)
        config = json.loads(make_config().to_json_string(use_diff=False))
        (snapshot / "config.json").write_text(json.dumps(config, indent=2))
        # The reference comes last: without it the model counts as absent.
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(REVISION)
    return home
