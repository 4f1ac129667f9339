# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""vLLM's own scheduler and KV-cache manager without a model, and a clock to run
them by.

Everything here is what an engine would have: a `VllmConfig`, a `KVCacheConfig` of
one group with full attention, a `Scheduler`. The model is a configuration file of
a few lines that is never loaded, so neither a GPU nor a download is needed.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.structured_output import StructuredOutputManager

_MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "vocab_size": 8,
    "max_position_embeddings": 2**31 - 1,
}


class VirtualClock:
    """Stands for the module `time` in the scheduler.

    Attributes:
        now: Seconds; what the clock shows.

    """

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """The scheduler, and with it the eviction hooks, reads this clock."""
        before = scheduler_module.time
        scheduler_module.time = self  # type: ignore[assignment]
        try:
            yield
        finally:
            scheduler_module.time = before


def make_scheduler(
    num_blocks: int,
    block_size: int,
    max_running: int,
    cache_options: dict[str, Any],
    log_stats: bool = False,
) -> Scheduler:
    """Build a scheduler that admits any request that fits into the pool.

    Args:
        num_blocks: That can hold something; vLLM's null block comes on top.
        block_size: Tokens.
        max_running: Requests at a time.
        cache_options: Further fields of `CacheConfig`: `eviction_policy` and its
            companions.
        log_stats: As of the engine.

    Raises:
        ValueError: The options are not valid; one line.

    """
    longest = num_blocks * block_size
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(_MODEL))
        model_config = ModelConfig(
            model=folder,
            skip_tokenizer_init=True,
            dtype="float32",
            seed=0,
            max_model_len=longest,
        )
    cache_config = CacheConfig(
        block_size=block_size, enable_prefix_caching=True, **cache_options
    )
    cache_config.num_gpu_blocks = num_blocks + 1
    vllm_config = VllmConfig(
        model_config=model_config,
        cache_config=cache_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_running,
            # Prompts are computed in one step.
            max_num_batched_tokens=max_running * longest,
            max_model_len=longest,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=False,
        ),
        device_config=DeviceConfig("cpu"),
    )
    group = KVCacheGroupSpec(
        ["layer"],
        FullAttentionSpec(
            block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32
        ),
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks + 1, kv_cache_tensors=[], kv_cache_groups=[group]
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=block_size,
        log_stats=log_stats,
    )
