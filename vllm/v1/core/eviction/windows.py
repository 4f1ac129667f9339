# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which of a model's KV-cache groups count, and how they look to the pool model."""

from typing import TYPE_CHECKING

from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager


def cached_groups(manager: "KVCacheManager") -> "list[SingleTypeKVCacheManager]":
    """The groups whose blocks requests find again, those with full attention first.

    Not scratch space that a request has for itself, and not blocks of another pool,
    whose numbers mean something else. Of what was hit, a group with a window holds
    only the end; the first group is what a policy takes for a request's path, and
    what the compute is counted by that was saved.

    Args:
        manager: The scheduler's.

    Raises:
        ValueError: There is no such group; one line.

    """
    groups = [
        group
        for group in manager.coordinator.single_type_managers
        if group.kv_cache_spec.prefix_cacheable
        and group.block_pool is manager.block_pool
    ]
    if not groups:
        raise ValueError("no KV-cache group is cached in the engine's own pool")
    return sorted(
        groups, key=lambda group: not isinstance(group.kv_cache_spec, FullAttentionSpec)
    )


def group_windows(manager: "KVCacheManager") -> tuple[int, list[int]]:
    """Describe the groups.

    Args:
        manager: The scheduler's.

    Returns:
        Tokens in a block, the same for every group, and for each of `cached_groups`
        the blocks of its window, 0 for full attention. The state of a Mamba group
        stands for the whole prefix: a window of one block.

    Raises:
        ValueError: The pool model cannot follow these groups; one line.

    """
    managers = cached_groups(manager)
    if len(managers) < len(manager.coordinator.single_type_managers):
        raise ValueError("it has a KV-cache group that is not cached with the others")
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
