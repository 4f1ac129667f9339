# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Where holes can be filled, and where not.

A prompt that is continued behind a hole must be one whose keys and values depend on
its tokens alone, lie in one group of blocks, and are computed by a worker that is told
each time where to go on.
"""

from typing import TYPE_CHECKING

from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from vllm.v1.core.eviction.hole_filling import HoleFiller

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler

logger = init_logger(__name__)


def make_hole_filler(scheduler: "Scheduler") -> HoleFiller | None:
    """Build what fills holes, where `may_fill_holes` says that they are to be filled.

    Returns:
        None where something prevents it, which is logged in one line.

    Raises:
        ValueError: It is required, and something prevents it; one line.

    """
    cache_config = scheduler.vllm_config.cache_config
    if obstacle := _obstacle(scheduler):
        if cache_config.hole_filling == "require":
            raise ValueError(f"--hole-filling require: not with {obstacle}.")
        logger.warning(
            "Holes in cached prefixes are not filled: not with %s. Blocks behind a "
            "missing one are of no use, and %s is at a loss.",
            obstacle,
            cache_config.eviction_policy,
        )
        return None
    from vllm._eviction_C import HoleRule

    from vllm.v1.core.eviction.recompute_cost import prefill_cost

    config = scheduler.vllm_config.scheduler_config
    block_size = scheduler.kv_cache_manager.block_pool.hash_block_size
    budget = config.max_num_batched_tokens
    if config.long_prefill_token_threshold > 0:
        budget = min(budget, config.long_prefill_token_threshold)
    prefill = prefill_cost(scheduler.vllm_config)
    rule = HoleRule.of_tokens(prefill.cost, block_size, budget, prefill.step_tokens)
    logger.info(
        "Holes in cached prefixes are filled; a cached run is worth a step of "
        "prefill from %.0f tokens at the start of a prompt.",
        prefill.step_tokens,
    )
    return HoleFiller(
        scheduler.kv_cache_manager, rule, config.scheduler_reserve_full_isl
    )


def _obstacle(scheduler: "Scheduler") -> str | None:
    """Name what prevents it, or None."""
    config = scheduler.vllm_config
    parallel = config.parallel_config
    manager = scheduler.kv_cache_manager
    specs = [group.kv_cache_spec for group in manager.kv_cache_config.kv_cache_groups]
    spec = specs[0] if len(specs) == 1 else None
    model = config.model_config
    speculative = config.speculative_config
    obstacles = {
        "prefix caching off": not manager.block_pool.enable_caching,
        "an encoder-decoder model": model.is_encoder_decoder,
        "a pooling model": model.runner_type == "pooling",
        "several KV-cache groups (a hybrid model)": len(specs) > 1,
        # A subclass may hold something else in its blocks.
        "anything but full attention": spec is not None
        and type(spec) not in (FullAttentionSpec, MLAAttentionSpec),
        "sliding-window or chunked attention": (
            getattr(spec, "sliding_window", None) is not None
            or getattr(spec, "attention_chunk_size", None) is not None
        ),
        "attention that is not causal": getattr(spec, "non_causal", False),
        "a block size other than that of the hashes": spec is not None
        and spec.block_size != manager.block_pool.hash_block_size,
        "decode or prefill context parallelism": (
            parallel.decode_context_parallel_size > 1
            or parallel.prefill_context_parallel_size > 1
        ),
        "a KV connector": config.kv_transfer_config is not None,
        "speculative decoding by EAGLE, MTP or a draft model": speculative is not None
        and (config.num_lookahead_tokens > 0 or speculative.use_eagle()),
        "chunked prefill off": not config.scheduler_config.enable_chunked_prefill,
        # It counts computed tokens on the device, by the lengths of the queries.
        "model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 chooses V1)": (
            config.use_v2_model_runner
        ),
    }
    return next((name for name, prevents in obstacles.items() if prevents), None)
