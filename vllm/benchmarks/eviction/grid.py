# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""One replay of a trace, and its row in a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vllm.benchmarks.eviction.cost_models import UNIFORM, CostModel
from vllm.benchmarks.eviction.oracles import replay_oracle
from vllm.benchmarks.eviction.peers import replay_peer
from vllm.benchmarks.eviction.policy_list import LabPolicy
from vllm.benchmarks.eviction.replay import Candidate, Result, replay, replay_adaptive
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.trace import Trace
from vllm.v1.core.eviction.adaptive_config import make_rule, resolve_candidates
from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import MANAGER, get_policy


def longest_request(trace: Trace) -> tuple[int, int]:
    """Index and blocks of the request that needs most."""
    tokens = trace.prompt_tokens.astype(np.int64) + np.maximum(trace.output_tokens, 1)
    index = int(np.argmax(tokens))
    return index, int(-(-tokens[index] // trace.block_size))


def check_capacities(trace: Trace, capacities: Sequence[int]) -> None:
    """Refuse a pool that a request would not fit into, as vLLM does.

    Raises:
        ValueError: One line that names the request.

    """
    index, needed = longest_request(trace)
    if min(capacities) < needed:
        raise ValueError(
            f"--capacity is {min(capacities)} blocks: request {index} (at "
            f"{trace.arrivals[index]:.3f} s, {trace.prompt_tokens[index]} tokens in, "
            f"{trace.output_tokens[index]} out) needs {needed}."
        )


def run_one(
    trace: Trace,
    capacity: int,
    policy: LabPolicy,
    window: float | None,
    cost: CostModel = UNIFORM,
    service: Service = Service(),  # noqa: B008 - frozen
) -> Result:
    """Replay once."""
    if policy.oracle:
        return replay_oracle(trace, capacity, policy.name, cost)
    if policy.peer:
        return replay_peer(trace, capacity, policy.name)
    holes = service.hole_rule(cost, trace.block_size)
    if policy.name != MANAGER:
        candidate = Candidate(policy.name, policy.config)
        return replay(trace, capacity, candidate, service.native(), cost, holes)
    config = parse_config(MANAGER, policy.config)
    candidates = [
        Candidate(each.name, each.config)
        for each in resolve_candidates(config.candidates)
    ]
    return replay_adaptive(
        trace,
        capacity,
        candidates,
        lambda num, now: make_rule(config, window, num, now),
        service.native(),
        cost,
        holes,
        config.objective,
    )


def savings(trace: Trace, result: Result, cost: CostModel) -> float:
    """Compute-savings ratio.

    Returns:
        What recomputing the hits would have cost, over what recomputing all full
        prompt blocks would have.

    """
    blocks = trace.prompt_blocks
    prefixes = cost.of_prefixes(int(blocks.max(initial=0)), trace.block_size)
    total = float(prefixes[blocks].sum())
    saved = result.saved
    if saved is None:
        saved = float(prefixes[result.hits].sum())
    return saved / total if total else 0.0


def make_row(
    trace: Trace,
    capacity: int,
    policy: LabPolicy,
    result: Result,
    cost: CostModel | None = None,
) -> dict[str, Any]:
    """Return the measures of a replay; None where one has no meaning."""
    ghosts = not policy.timeless and (
        policy.name == MANAGER or get_policy(policy.name).ghosts
    )
    tokens = result.query_tokens
    row = {
        "capacity": capacity,
        "policy": policy.label,
        "offline": policy.offline,
        "block_hit_rate": result.hit_rate,
        "token_hit_rate": result.hit_tokens / tokens if tokens else 0.0,
    }
    if cost is not None:
        row["compute_savings"] = savings(trace, result, cost)
    return row | {
        "hit_blocks": result.hit_blocks,
        "prompt_blocks": result.query_blocks,
        "hit_tokens": result.hit_tokens,
        "prompt_tokens": tokens,
        "evictions": result.evictions,
        "ghost_hits": result.ghost_hits if ghosts else None,
        "switches": len(result.switches) if policy.name == MANAGER else None,
        **_holes(result, trace.block_size),
        "mean_wait_s": None if policy.timeless else result.mean_wait,
    }


def _holes(result: Result, block_size: int) -> dict[str, Any]:
    """Measures of holes; None where hits are prefixes."""
    each, blocks = result.request_holes, result.filled_blocks
    if each is not None and len(each) == 0:
        each = np.zeros(1, np.uint32)
    return {
        "holes": result.holes,
        "hole_blocks": result.hole_blocks,
        "holes_mean": _over(result.holes, result.requests),
        "holes_p99": None if each is None else float(np.quantile(each, 0.99)),
        "holes_max": None if each is None else int(each.max(initial=0)),
        "hole_length": _over(result.hole_blocks, result.holes),
        "filled_holes": result.filled_holes,
        "recomputed_tokens": None if blocks is None else blocks * block_size,
        "compute_saved": result.saved,
    }


def _over(count: int | None, of: int | None) -> float | None:
    return None if count is None else count / max(1, of or 0)
