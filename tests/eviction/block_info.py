# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a policy is told of a block beside its key, in tests.

A depth, and a cost that grows with it as in attention. The live queue tells its policy
by itself; a naive model is told beforehand, so that most need not know of it.
"""

from typing import Any

from vllm._eviction_C import Policy

BLOCK_SIZE = 16  # tokens


def cost_at(depth: int) -> float:
    """Return a recompute cost that is exact in 32 bits."""
    return 1 + depth / 256


def insert(policy: Any, slot: int, key: int, depth: int) -> None:
    """Insert a block that ends this many tokens from the start of its prompt."""
    if isinstance(policy, Policy):
        policy.insert(slot, key, depth=depth, cost=cost_at(depth))
        return
    if hasattr(policy, "describe"):
        policy.describe(slot, depth, cost_at(depth))
    policy.insert(slot, key)
