# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Jobs of the engine's process about prompts with holes in their cached prefix."""

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.engine.serving import Answer, ask, check_idle, engine, scheduler_of
from tests.engine.traffic import Prompt

if TYPE_CHECKING:
    from vllm import LLM

BLOCK_SIZE = 32  # tokens
NUM_BLOCKS = 96  # of the pool
NUM_TOKENS = 6  # of each answer


@dataclass(frozen=True)
class HoleReport:
    """What prompts got that were served with holes.

    Attributes:
        cold: Of each prompt, when nothing was cached.
        filled: Of each prompt and pattern of missing blocks.

    """

    cold: list[Answer]
    filled: dict[tuple[int, ...], list[Answer]]


def draw_prompts(number: int, num_blocks: int, seed: int = 0) -> list[Prompt]:
    """Prompts of so many full blocks and a tail."""
    rng = random.Random(seed)
    return [
        [rng.randrange(256) for _ in range(num_blocks * BLOCK_SIZE + 5 + each)]
        for each in range(number)
    ]


def fill_any_hole(llm: "LLM", budget: int = 1024) -> None:
    """Every cached run is worth it, however short."""
    from vllm._eviction_C import HoleRule, RecomputeCost

    filler: Any = scheduler_of(llm).kv_cache_manager.hole_filler
    filler.rule = HoleRule(
        RecomputeCost(), BLOCK_SIZE, budget=max(1, budget // BLOCK_SIZE), step=0.0
    )


def spoil(
    llm: "LLM", prompt: Prompt, places: tuple[int, ...], evict: bool = True
) -> None:
    """Evict blocks of a cached prompt, and overwrite what was in them."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    from vllm import SamplingParams

    probe = Request(
        request_id="probe",
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )
    core: Any = llm.llm_engine.engine_core
    pool = scheduler_of(llm).kv_cache_manager.block_pool
    found = [pool.get_cached_block(probe.block_hashes[place], [0]) for place in places]
    ids = {blocks[0].block_id for blocks in found if blocks is not None}
    assert len(ids) == len(places), "not cached"
    if evict:
        pool.evict_blocks(ids)
    runner = core.engine_core.model_executor.driver_worker.worker.model_runner
    for layer in runner.kv_caches:
        axis = list(layer.shape).index(pool.num_gpu_blocks)
        for block in ids:
            layer.narrow(axis, block, 1).normal_(std=3.0)


def serve_all_patterns(
    model: str, num_blocks: int, at_once: int, settings: dict[str, Any]
) -> HoleReport:
    """Serve prompts with every set of missing blocks, and cold.

    Args:
        model: Folder.
        num_blocks: Full blocks of a prompt.
        at_once: Prompts that are served together, each with holes of its own.
        settings: Of `LLM`.

    """
    prompts = draw_prompts(at_once, num_blocks)
    patterns = [
        pattern
        for length in range(num_blocks + 1)
        for pattern in itertools.combinations(range(num_blocks), length)
    ]
    report = HoleReport([], {})
    given = {"num_gpu_blocks_override": NUM_BLOCKS, "hole_filling": "require"}
    with engine(model, **(given | settings)) as llm:
        fill_any_hole(llm, settings.get("max_num_batched_tokens", 1024))
        report.cold.extend(ask(llm, prompts, NUM_TOKENS))
        for i, pattern in enumerate(patterns):
            assert llm.reset_prefix_cache()
            ask(llm, prompts, 1)
            # The others' holes are those of the patterns that follow.
            for j, prompt in enumerate(prompts):
                spoil(llm, prompt, patterns[(i + j) % len(patterns)])
            report.filled[pattern] = ask(llm, prompts, NUM_TOKENS)
            check_idle(llm)
    return report


def serve_with_noise(model: str, num_blocks: int, place: int) -> tuple[Answer, Answer]:
    """Serve a prompt cold, and with noise in a block that counts as cached."""
    (prompt,) = draw_prompts(1, num_blocks)
    given = {"num_gpu_blocks_override": NUM_BLOCKS, "hole_filling": "require"}
    with engine(model, **given) as llm:
        fill_any_hole(llm)
        (cold,) = ask(llm, [prompt], NUM_TOKENS)
        spoil(llm, prompt, (0,))
        spoil(llm, prompt, (place,), evict=False)
        (noisy,) = ask(llm, [prompt], NUM_TOKENS)
    return cold, noisy


def log_of_engine(model: str, settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Level and text of what an engine logs that serves one prompt."""
    from tests.engine.serving import logged

    given = {"num_gpu_blocks_override": NUM_BLOCKS}
    with logged() as log, engine(model, **(given | settings)) as llm:
        ask(llm, draw_prompts(1, 3), 2)
    return log
