# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Learned policies that libCacheSim has: LRB and 3L-Cache, for comparison.

Their model of a cache is another than vLLM's: one block after the other is asked for,
nothing is in use in between, and a miss is kept at once. A request asks for its blocks
from the last to the first, so that the beginning of a prompt is the most recent, as
where an engine releases it. What counts as a hit is the same as everywhere: the longest
prefix that was there.
"""

from typing import Any

import numpy as np

from vllm.benchmarks.eviction.policy_list import PEERS
from vllm.benchmarks.eviction.replay import Result, sequential_result
from vllm.benchmarks.eviction.trace import Trace

_CLASSES = {"lrb": "LRB", "3lcache": "ThreeLCache"}
_LARGEST_ID = 2**63 - 1


def replay_peer(trace: Trace, num_blocks: int, name: str) -> Result:
    """Replay a trace under a policy of libCacheSim.

    Args:
        trace: Requests.
        num_blocks: Blocks of the cache.
        name: One of `policy_list.PEERS`.

    Raises:
        ValueError: libCacheSim is not installed.

    """
    try:
        import libcachesim
    except ImportError:
        raise ValueError(
            f"{name} is libCacheSim's, which is not installed: pip install libcachesim."
        ) from None
    assert name in PEERS
    cache: Any = getattr(libcachesim, _CLASSES[name])(num_blocks)
    access = libcachesim.Request(obj_size=1)
    hits = np.zeros(len(trace), np.uint32)
    misses = 0
    offsets = trace.offsets.tolist()
    # The block with the last prompt token is always computed.
    tokens = trace.prompt_tokens.astype(np.int64)
    findable = np.maximum(tokens - 1, 0) // trace.block_size
    prefixes = np.minimum(trace.prompt_blocks, findable).tolist()
    for i, now in enumerate(trace.arrivals.tolist()):
        access.clock_time = int(now)
        prefix = prefixes[i]
        keys = trace.keys[offsets[i] : offsets[i + 1]].tolist()
        for place in range(len(keys) - 1, -1, -1):
            access.obj_id = keys[place] & _LARGEST_ID
            if cache.get(access):
                continue
            misses += 1
            prefix = min(prefix, place)
        hits[i] = prefix
    return sequential_result(trace, hits, max(0, misses - num_blocks))
