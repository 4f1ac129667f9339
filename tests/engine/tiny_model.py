# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Tiny language models, made on the spot, for tests that need a real engine.

Their weights are random and seeded, and their scale is that of trained models:
with transformers' initialisation every prompt would lead to nearly the same
logits, and a test that compares tokens could not fail. Here attention is peaked,
so that one wrong block of the KV cache changes what comes out, and the two best
logits lie far enough apart that float32 rounding changes nothing.

The tokenizer knows bytes and nothing else. It needs no file from anywhere and
reads and writes any text.
"""

from pathlib import Path
from typing import Any

VOCABULARY = 288  # 256 bytes, the special tokens, and room up to a multiple of 32
BOS, EOS = 256, 257

#: Environment of a process that runs a tiny model; to be set before torch is
#: imported. One thread: two would wait for each other at every operator, which on
#: a busy machine takes twenty times as long. In one process, the engine starts
#: sooner and a test can look into its scheduler.
ENGINE_ENVIRONMENT: dict[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}

#: Settings for ``LLM(...)`` with which the engine starts soonest on a CPU. The
#: caller adds ``num_gpu_blocks_override`` and, where needed, the policy.
ENGINE_SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "block_size": 32,  # CPU attention takes multiples of 32
    "max_model_len": 1024,
    "max_num_batched_tokens": 1024,
    "max_num_seqs": 16,
    "enforce_eager": True,
}


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # Added in this order, they get the ids BOS and EOS.
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    )
    wrapped.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    wrapped.save_pretrained(folder)


def _save(model: Any, folder: Path, seed: int, attention_gain: float) -> Path:
    """Gives a model weights of a real scale and saves it with a tokenizer.

    Args:
        model: a transformers model; its weights are overwritten.
        folder: where to save; created if need be.
        seed: of the weights.
        attention_gain: factor on the query and key projections. A product of
            unit-variance vectors gives almost uniform attention.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                continue  # norms keep what their kind begins with
            std = 1.0 if "embed" in name else weight.shape[1] ** -0.5
            if "q_proj" in name or "k_proj" in name:
                std *= attention_gain
            weight.normal_(std=std, generator=generator)
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def make_tiny_llama(folder: Path, seed: int = 0) -> Path:
    """Makes a Llama with full attention in two layers: one KV-cache group.

    Args:
        folder: where to save it.
        seed: of the weights.

    Returns:
        ``folder``, to be given to ``LLM`` or ``vllm serve``.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=False,
    )
    return _save(LlamaForCausalLM(config), folder, seed, attention_gain=2.0)


def make_tiny_hybrid(folder: Path, seed: int = 0) -> Path:
    """Makes a Gemma 3 with sliding-window and full attention: six KV-cache groups.

    Five layers see the last 256 tokens, one sees all. This is the family of
    models whose prefix cache frees blocks in the middle of a request.

    Args:
        folder: where to save it.
        seed: of the weights.

    Returns:
        ``folder``, to be given to ``LLM`` or ``vllm serve``.
    """
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    config = Gemma3TextConfig(
        architectures=["Gemma3ForCausalLM"],
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        # Queries and keys are normalised; this divisor is what peaks attention.
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
        sliding_window=256,
        rope_parameters={"sliding_attention": rope, "full_attention": dict(rope)},
        max_position_embeddings=4096,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=EOS,
        tie_word_embeddings=False,
    )
    return _save(Gemma3ForCausalLM(config), folder, seed, attention_gain=1.0)
