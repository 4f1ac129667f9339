# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Oracles: what no policy can reach, because it takes the future to know it.

They replay requests one after the other, in order of arrival, with nothing in use
between them; see `csrc/eviction/oracles`.
"""

import numpy as np

from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.trace import Trace


def replay_oracle(trace: Trace, num_blocks: int, name: str) -> Result:
    """Replay under an oracle.

    Args:
        trace: Requests; their keys name prefixes.
        num_blocks: Blocks of the cache.
        name: One of `policy_list.ORACLES`.

    Raises:
        ValueError: A key of the trace stands for two prefixes.

    """
    if name == "belady":
        queries, hits, evictions, each = trace.for_oracles.belady(num_blocks)
    else:
        queries, hits, evictions, each = trace.for_oracles.infinite()
    return Result(
        hit_rate=hits / queries if queries else 0.0,
        query_blocks=queries,
        hit_blocks=hits,
        requests=len(trace),
        refused=0,
        mean_wait=0.0,
        evictions=evictions,
        query_tokens=int(trace.prompt_tokens.sum(dtype=np.int64)),
        hit_tokens=hits * trace.block_size,
        hits=each,
    )
