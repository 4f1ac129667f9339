# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Traces whose requests are words: a letter a block."""

import numpy as np

from vllm.benchmarks.eviction.trace import Trace

BLOCK = 16


def trace_of(paths, prompt_tail=1, seconds=1.0):
    """Build a trace of prompts from words, whose letters are blocks.

    Args:
        paths: A word a request; "ab" and "ac" share a block, "ab" and "cb" none.
        prompt_tail: Tokens after the last full block.
        seconds: Between arrivals.

    """
    keys: dict[str, int] = {}
    names = [
        keys.setdefault(path[: i + 1], len(keys) + 1)
        for path in paths
        for i in range(len(path))
    ]
    return Trace(
        block_size=BLOCK,
        arrivals=np.arange(len(paths)) * seconds,
        prompt_tokens=np.array(
            [BLOCK * len(path) + prompt_tail for path in paths], np.uint32
        ),
        output_tokens=np.ones(len(paths), np.uint32),
        offsets=np.cumsum([0, *map(len, paths)]).astype(np.uint64),
        keys=np.array(names, np.uint64),
        sessions=np.full(len(paths), -1),
    )
