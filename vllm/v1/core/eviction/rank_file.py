# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Each data-parallel rank has a cache of its own, and so files of its own."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import ParallelConfig


def path_of_rank(path: str, parallel_config: "ParallelConfig") -> str:
    """The file of this engine core: of rank 0 as given, of others NAME.dpRANK.SUFFIX.

    By the index and not by the number of ranks: those of a dense model are independent
    engines, each of which is told that it is the only one.

    Args:
        path: As the operator gave it to all of them.
        parallel_config: Of this engine core.

    """
    rank = parallel_config.data_parallel_index
    if rank == 0:
        return path
    stem, suffix = os.path.splitext(path)
    return f"{stem}.dp{rank}{suffix}"
