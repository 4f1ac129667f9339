# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Floating-point operations of a model's prefill, from its `config.json`.

Counted are the matrix products: two operations for each weight that a token meets, and
for each token that it attends to, two for each element of the key and of the value of
each query head. Left out: embeddings and the head over the vocabulary (a prompt needs
it for its last token only), norms, rotary embedding, softmax, activation functions.

Of experts those count that a token is sent to, with the router. With multi-head latent
attention keys and values are those of the prefill, which are not compressed.

The engine reads the config that it has loaded, the lab the file: both are only asked
for fields by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Config(Protocol):
    """A `config.json` of Hugging Face's form, or what stands for one."""

    def get(self, name: str, /) -> Any:
        """Value of a field, None where there is none."""


class LoadedConfig:
    """The config that an engine has loaded, with its class's names for the fields.

    Args:
        config: Of transformers, or a mapping.

    """

    def __init__(self, config: Any):
        self._config = config

    def get(self, name: str, /) -> Any:
        if isinstance(self._config, Mapping):
            return self._config.get(name)
        return getattr(self._config, name, None)


# A feed-forward layer of two matrices; all others have a gate beside them.
_UNGATED = frozenset(
    (
        "bloom",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "mpt",
        "opt",
        "phi",
        "starcoder2",
    )
)

# What a model calls the width of its hidden state.
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")
# Layers that attend to all tokens before, by the names that configs have for them.
_ATTENDS = ("full_attention", "attention")


@dataclass(frozen=True)
class Flops:
    """Operations of one prompt token.

    Attributes:
        per_token: Wherever it stands.
        per_depth: More for each token that comes before it, in layers that attend to
            all of them.
        per_window_depth: The same in layers with a sliding window, for each token
            within it.
        window: Tokens; 0 where there is none.

    """

    per_token: float
    per_depth: float
    per_window_depth: float
    window: int

    @property
    def slope(self) -> float:
        """Of the cost by depth: a token of depth, in units of one at depth zero."""
        return self.per_depth / self.per_token

    @property
    def window_slope(self) -> float:
        """The same, as far as the window reaches."""
        return self.per_window_depth / self.per_token


def flops_of(config: Config) -> Flops:
    """Count.

    Args:
        config: Of a model of several modalities, that of the text.

    Raises:
        ValueError: One line, when a field is missing or a layer is of a kind that has
            no such cost.

    """
    if isinstance(config.get("text_config"), dict):
        config = config["text_config"]
    layers = _number(config, "num_hidden_layers")
    weights, each = _attention(config)
    windowed = _windowed_layers(config, layers)
    sliding = sum(windowed)
    per_token = layers * weights + sum(
        _feed_forward(config, layer) for layer in range(layers)
    )
    return Flops(
        per_token=2.0 * per_token,
        per_depth=2.0 * each * (layers - sliding),
        per_window_depth=2.0 * each * sliding,
        window=_window(config) if sliding else 0,
    )


def dense_estimate(config: Config) -> Flops:
    """Count a mean layer of a dense model as wide, where a config is not understood.

    Layers of a kind that has no such cost (a state space, linear attention) count as if
    they looked at no token before, where the config says which they are.

    Raises:
        ValueError: It does not even tell a width; one line.

    """
    hidden = next((n for name in _WIDTHS if (n := _whole(config.get(name)))), 0)
    if not hidden:
        raise ValueError(f"has none of {', '.join(_WIDTHS)}.")
    wide = _whole(config.get("intermediate_size"))
    weights = 4 * hidden**2 + (3 * hidden * wide if wide else 8 * hidden**2)
    kinds = config.get("layer_types") or config.get("layers_block_type")
    share = 1.0
    if isinstance(kinds, list | tuple) and kinds:
        share = sum(kind in _ATTENDS for kind in kinds) / len(kinds)
    return Flops(2.0 * weights, 4.0 * hidden * share, 0.0, 0)


def _attention(config: Config) -> tuple[int, int]:
    """Weights of a layer's projections, and elements of keys and values to look at."""
    hidden = _number(config, "hidden_size")
    heads = _number(config, "num_attention_heads")
    if config.get("kv_lora_rank"):
        rank = _number(config, "kv_lora_rank")
        plain = _number(config, "qk_nope_head_dim")
        rotary = _number(config, "qk_rope_head_dim")
        value = _number(config, "v_head_dim")
        key = plain + rotary
        query_rank = _optional(config, "q_lora_rank")
        query = (
            query_rank * (hidden + heads * key) if query_rank else hidden * heads * key
        )
        latent = hidden * (rank + rotary) + rank * heads * (plain + value)
        return query + latent + heads * value * hidden, heads * (key + value)
    width = _optional(config, "head_dim") or hidden // heads
    groups = _optional(config, "num_key_value_heads")
    if not groups:
        groups = 1 if config.get("multi_query") else heads
    return hidden * width * (2 * heads + 2 * groups), heads * 2 * width


def _feed_forward(config: Config, layer: int) -> int:
    """Weights that a token meets."""
    hidden = _number(config, "hidden_size")
    matrices = 2 if config.get("model_type") in _UNGATED else 3
    experts = _first(config, "num_experts", "num_local_experts", "n_routed_experts")
    if not experts or _is_dense(config, layer):
        named = _first(config, "intermediate_size", "ffn_hidden_size", "n_inner")
        return matrices * hidden * (named or 4 * hidden)
    chosen = _first(config, "num_experts_per_tok", "experts_per_token", "moe_topk")
    if not chosen:
        raise ValueError("has experts, but no 'num_experts_per_tok'.")
    width = _optional(config, "moe_intermediate_size")
    width = width or _number(config, "intermediate_size")
    shared = _optional(config, "n_shared_experts") * width
    shared += _optional(config, "shared_expert_intermediate_size")
    return hidden * experts + matrices * hidden * (chosen * width + shared)


def _is_dense(config: Config, layer: int) -> bool:
    """Whether a layer of a model with experts has none."""
    if layer in (config.get("mlp_only_layers") or ()):
        return True
    if layer < (config.get("first_k_dense_replace") or 0):
        return True
    step = config.get("decoder_sparse_step") or 1
    if (layer + 1) % step:
        return True
    frequency = config.get("moe_layer_freq") or 1
    return isinstance(frequency, int) and layer % frequency != 0


def _windowed_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has a sliding window."""
    kinds = config.get("layer_types")
    if kinds:
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise ValueError(
                    f"has layers of type {kind!r}: only full_attention and "
                    "sliding_attention have a cost by depth here."
                )
        # Without a window they attend to all.
        windowed = bool(config.get("sliding_window"))
        return [windowed and kind == "sliding_attention" for kind in kinds]
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return [False] * layers
    pattern = config.get("sliding_window_pattern")
    if pattern is None and config.get("model_type") == "gemma2":
        pattern = 2
    if pattern:
        return [(layer + 1) % pattern != 0 for layer in range(layers)]
    # Qwen2's name for the first layer with a window.
    first = config.get("max_window_layers") if config.get("use_sliding_window") else 0
    return [layer >= (first or 0) for layer in range(layers)]


def _window(config: Config) -> int:
    return _number(config, "sliding_window")


def _first(config: Config, *names: str) -> int:
    """Value of the first field that is there, else 0."""
    return next((_number(config, name) for name in names if config.get(name)), 0)


def _optional(config: Config, name: str) -> int:
    """Value of a field, 0 where it is not there."""
    return _number(config, name) if config.get(name) else 0


def _whole(value: Any) -> int:
    """A whole number more than 0, and 0 for all else."""
    return value if isinstance(value, int) and value > 0 else 0


def _number(config: Config, name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(
            f"has no {name!r}: it is not the config.json of a language model."
            if value is None
            else f"{name} is {value!r}: must be a whole number, more than 0."
        )
    return value
