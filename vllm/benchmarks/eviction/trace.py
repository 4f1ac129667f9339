# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A trace in memory: columns, one entry for each request.

Python objects for a million blocks cost a hundred times the memory and the time;
the C++ simulator reads these arrays in place.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from vllm._eviction_C import OracleTrace


@dataclass
class Trace:
    """Requests in order of arrival.

    Attributes:
        block_size: Tokens in a block.
        arrivals: float64 (requests,); seconds from the start.
        prompt_tokens: uint32 (requests,).
        output_tokens: uint32 (requests,).
        offsets: uint64 (requests + 1,); where each request's keys begin.
        keys: uint64 (offsets[-1],); names of the full blocks of prompt and output
            together, equal where the prefixes up to the block's end are equal.
            Never zero.
        sessions: int64 (requests,); which session a request belongs to.
        last_key: When keys are numbered from 1 in order of first use, the last one:
            tables by key make a replay several times faster. Else 0.

    """

    block_size: int
    arrivals: NDArray[np.float64]
    prompt_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    sessions: NDArray[np.int64]
    last_key: int = 0

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def prompt_blocks(self) -> NDArray[np.uint32]:
        """uint32 (requests,); full blocks of each prompt."""
        full = np.diff(self.offsets).astype(np.uint32)
        return np.minimum(self.prompt_tokens // np.uint32(self.block_size), full)

    @cached_property
    def for_oracles(self) -> OracleTrace:
        """The blocks numbered, as the oracles need them; four bytes a block."""
        return OracleTrace(self.prompt_tokens, self.offsets, self.keys, self.block_size)

    def infinite_hit_rate(self) -> float:
        """Prefix hits over full prompt blocks with a cache that never evicts."""
        queries, hits, *_ = self.for_oracles.infinite()
        return hits / queries if queries else 0.0
