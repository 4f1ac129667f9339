# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How a model's KV-cache groups look to the pool model."""

from typing import TYPE_CHECKING

from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager


def group_windows(manager: "KVCacheManager") -> tuple[int, list[int]]:
    """Describe the groups.

    Args:
        manager: The scheduler's.

    Returns:
        Tokens in a block, the same for every group, and for each group the blocks
        of its window, 0 for full attention. The state of a Mamba group stands for
        the whole prefix: a window of one block.

    Raises:
        ValueError: The pool model cannot follow these groups; one line.

    """
    managers = manager.coordinator.single_type_managers
    sizes = {group.block_size for group in managers}
    if len(sizes) > 1:
        raise ValueError(
            f"its KV-cache groups have blocks of {sorted(sizes)} tokens, not one size"
        )
    windows = []
    for group in managers:
        spec = group.kv_cache_spec
        if isinstance(spec, SlidingWindowSpec):
            windows.append(max(1, cdiv(spec.sliding_window - 1, group.block_size)))
        elif isinstance(spec, MambaSpec):
            windows.append(1)
        elif isinstance(spec, FullAttentionSpec):
            windows.append(0)
        else:
            raise ValueError(f"it has a KV-cache group of {type(spec).__name__}")
    return sizes.pop(), windows
