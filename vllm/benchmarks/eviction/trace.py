# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A trace: columns, one entry for each request.

Python objects for a million blocks cost a hundred times the memory and the time;
the C++ simulator reads these arrays in place.
"""

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from vllm._eviction_C import OracleTrace

_CHUNK = 1 << 24  # blocks looked at together, where not all need be
_ORACLE_BYTES = 32  # a block: its number, its next use, and tables to find them


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

    def distinct_blocks(self) -> int:
        """Different full blocks of all prompts and outputs."""
        if self.last_key:
            return self.last_key
        seen = np.zeros(0, dtype=np.uint64)
        for start in range(0, len(self.keys), _CHUNK):
            seen = np.union1d(seen, self.keys[start : start + _CHUNK])
        return len(seen)

    def require_memory(self, bytes_per_block: int, who: str) -> None:
        """Refuse work that a trace kept in a file is too large for.

        Raises:
            ValueError: One line that says what is needed.

        """
        if not isinstance(self.keys, np.memmap):
            return
        needed = bytes_per_block * len(self.keys)
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > free:
            raise ValueError(
                f"{who} must see the whole trace at once: {len(self.keys):,} blocks "
                f"need {needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are "
                "free; --seconds takes less of it."
            )

    @cached_property
    def for_oracles(self) -> OracleTrace:
        """The blocks numbered, as the oracles need them.

        Raises:
            ValueError: See `require_memory`.

        """
        self.require_memory(_ORACLE_BYTES, "An oracle")
        return OracleTrace(
            self.prompt_tokens,
            self.offsets,
            self.keys,
            self.block_size,
            self.last_key,
        )

    def infinite_hit_rate(self) -> float:
        """Prefix hits over full prompt blocks with a cache that never evicts."""
        queries, hits, *_ = self.for_oracles.infinite()
        return hits / queries if queries else 0.0
