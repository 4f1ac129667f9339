# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Oracles: what no policy can reach, because it takes the future to know it.

They replay requests one after the other, in order of arrival, with nothing in use
between them; see `csrc/eviction/oracles` and `ilp.py`.
"""

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.cost_models import UNIFORM, CostModel
from vllm.benchmarks.eviction.replay import Result, sequential_result
from vllm.benchmarks.eviction.trace import Trace


def replay_oracle(
    trace: Trace, num_blocks: int, name: str, cost: CostModel = UNIFORM
) -> Result:
    """Replay under an oracle.

    Args:
        trace: Requests; their keys name prefixes.
        num_blocks: Blocks of the cache.
        name: One of `policy_list.ORACLES`.
        cost: Of a block, for those that weigh it.

    Raises:
        ValueError: A key of the trace stands for two prefixes, or the trace is too
            large for `ilp`.

    """
    if name == "belady":
        _, _, evictions, hits = trace.for_oracles.belady(num_blocks)
        return sequential_result(trace, hits, evictions)
    if name == "infinite":
        _, _, evictions, hits = trace.for_oracles.infinite()
        return sequential_result(trace, hits, evictions)
    if name == "belady-compute":
        _, _, evictions, hits, saved, *holes = trace.for_oracles.belady_compute(
            num_blocks, trace.block_size, cost.native()
        )
        result = sequential_result(trace, hits, evictions)
        result.saved = saved
        result.holes, result.hole_blocks = holes
        return result
    from vllm.benchmarks.eviction.ilp import best_hits

    found = best_hits(trace, num_blocks, cost, prefix=name == "ilp-prefix")
    return _of_found(trace, found, cost)


def _of_found(trace: Trace, found: NDArray[np.bool_], cost: CostModel) -> Result:
    """The result of a replay in which these accesses are hits."""
    blocks = trace.prompt_blocks.astype(np.int64)
    request = np.repeat(np.arange(len(trace)), blocks)
    depth = np.arange(len(request)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    hit = found[trace.offsets.astype(np.int64)[request] + depth]
    hits = np.bincount(request, hit, minlength=len(trace)).astype(np.uint32)
    result = sequential_result(trace, hits, None)
    result.saved = float(cost((depth[hit] + 1) * trace.block_size).sum())
    begins = ~hit & ((depth == 0) | np.concatenate(([True], hit[:-1])))
    result.holes, result.hole_blocks = int(begins.sum()), int((~hit).sum())
    return result
