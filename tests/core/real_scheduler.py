# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The fork's real `Scheduler` without a model: tokens are drawn by the test.

A config file of a few lines, written on the spot, is all that vLLM wants to know
of a model until its weights are needed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.structured_output import StructuredOutputManager

BLOCK_SIZE = 4  # tokens
WINDOW = 2 * BLOCK_SIZE  # of the second group, where there is one
MAX_LENGTH = 256  # tokens


def write_model(folder: Path) -> Path:
    """Write the config of a model that nobody will load."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 5000,
        "max_position_embeddings": MAX_LENGTH,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def full_group(block_size: int = BLOCK_SIZE) -> KVCacheGroupSpec:
    """Layers with full attention."""
    return KVCacheGroupSpec(["full"], FullAttentionSpec(**_shape(block_size)))


def window_group(block_size: int = BLOCK_SIZE) -> KVCacheGroupSpec:
    """Layers with a sliding window."""
    spec = SlidingWindowSpec(**_shape(block_size), sliding_window=WINDOW)
    return KVCacheGroupSpec(["window"], spec)


def scratch_group() -> KVCacheGroupSpec:
    """A ring of two tokens that each request has for itself, never cached."""
    return KVCacheGroupSpec(["scratch"], CircularBufferSpec(**_shape(2)))


def _shape(block_size: int) -> dict[str, Any]:
    return {
        "block_size": block_size,
        "num_kv_heads": 1,
        "head_size": 16,
        "dtype": torch.float32,
    }


def cache_groups(num_groups: int) -> list[KVCacheGroupSpec]:
    """One group with full attention; the second has a sliding window."""
    return [full_group(), window_group()][:num_groups]


def make_scheduler(
    model: Path,
    policy: str = "lru",
    *,
    num_blocks: int = 40,
    num_groups: int = 1,
    groups: Sequence[KVCacheGroupSpec] | None = None,
    max_tokens_in_step: int = 64,
    log_stats: bool = True,
    asynchronous: bool = False,
    **cache: Any,
) -> Scheduler:
    """Build a scheduler as an engine would.

    Args:
        model: From `write_model`.
        policy: `--eviction-policy`.
        num_blocks: Of the pool, the null block among them.
        num_groups: Two: full attention and a sliding window.
        groups: Others than these.
        max_tokens_in_step: Longer prompts are cut into chunks.
        log_stats: As `LLM(disable_log_stats=...)`.
        asynchronous: The asynchronous scheduler.
        cache: Further fields of `CacheConfig`.

    """
    cache_config = CacheConfig(
        **{"block_size": BLOCK_SIZE, "enable_prefix_caching": True}
        | {"eviction_policy": policy}
        | cache
    )
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model), skip_tokenizer_init=True, dtype="float32"
        ),
        cache_config=cache_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=max_tokens_in_step,
            max_model_len=MAX_LENGTH,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=asynchronous,
        ),
        device_config=DeviceConfig("cpu"),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
    )
    cache_config.num_gpu_blocks = num_blocks
    groups = cache_groups(num_groups) if groups is None else list(groups)
    scheduler_class = AsyncScheduler if asynchronous else Scheduler
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=max(BLOCK_SIZE, *(g.kv_cache_spec.block_size for g in groups)),
        hash_block_size=BLOCK_SIZE,
        log_stats=log_stats,
    )


def draw_tokens(
    scheduler: Scheduler, output: SchedulerOutput, token: int
) -> ModelRunnerOutput:
    """What a model would answer: one token for each request whose prompt is done."""
    ids = list(output.num_scheduled_tokens)
    sampled: Sequence[list[int]] = [
        [] if scheduler.requests[request_id].is_prefill_chunk else [token]
        for request_id in ids
    ]
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
        sampled_token_ids=list(sampled),
    )


def step(scheduler: Scheduler, token: int = 7) -> SchedulerStats | None:
    """One step of the engine; returns what the front end would be told."""
    output = scheduler.schedule()
    answer = draw_tokens(scheduler, output, token)
    told = scheduler.update_from_output(output, answer)
    return next((out.scheduler_stats for out in told.values()), None)


def run_to_end(scheduler: Scheduler) -> list[SchedulerStats]:
    """Step until no request is left; returns the statistics of the steps."""
    stats = []
    for _ in range(1000):
        if not scheduler.has_unfinished_requests():
            return stats
        stats.append(step(scheduler))
    raise AssertionError("no progress")
