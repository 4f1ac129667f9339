# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Each data-parallel rank has a cache of its own, and so files of its own."""

import os
from typing import TYPE_CHECKING, Any

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


def config_of_rank(
    config: dict[str, Any] | None, parallel_config: "ParallelConfig"
) -> dict[str, Any]:
    """A policy's parameters, the file that this engine core writes among them."""
    config = dict(config or {})
    if config.get("state_file"):
        config["state_file"] = path_of_rank(config["state_file"], parallel_config)
    return config
