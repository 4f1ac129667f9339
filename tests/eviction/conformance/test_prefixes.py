# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Policies that say they are `prefix_safe` never strand a block.

Without its parent no request can find a block, so a parent that goes before its
child wastes the child's place. Only policies that promise it are held to it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.eviction.request_pool import RequestPool
from vllm.v1.core.eviction.registry import get_policy

# A tree of contents: three children below each node, four levels. A request is a
# node, with all that is above it; it is drawn with which running request ends then.
NUM_NODES = 3 + 9 + 27 + 81
requests = (
    st.integers(0, 60)
    .flatmap(lambda size: st.binary(min_size=2 * size, max_size=2 * size))
    .map(
        lambda data: [
            (1 + a % NUM_NODES, b % 6) for a, b in zip(*[iter(data)] * 2, strict=True)
        ]
    )
)


def parent_of(node: int) -> int:
    return (node - 1) // 3


def keys_of(node: int) -> list[int]:
    return [*keys_of(parent_of(node)), node] if node > 0 else []


def prefix_safe(policy: str) -> bool:
    spec = get_policy(policy)
    return spec.make(1, spec.config()).traits["prefix_safe"]


def test_lru_is_prefix_safe():
    assert prefix_safe("lru")


def admit(pool: RequestPool, node: int) -> list[tuple[int, list[int]]]:
    """Admit a request. Returns evicted blocks whose children stayed, with those."""
    seen = len(pool.evicted)
    pool.admit(keys_of(node))
    gone = pool.evicted[seen:]
    stranded = []
    for at, key in enumerate(gone):
        stayed = {*gone[at + 1 :], *pool.resident} - set(keys_of(node))
        children = [child for child in stayed if parent_of(child) == key]
        if children:
            stranded.append((key, children))
    return stranded


def test_no_parent_goes_before_its_child(make, policy):
    if not prefix_safe(policy):
        pytest.skip("it does not promise this")

    @settings(max_examples=150)
    @given(num_slots=st.integers(4, 14), requests=requests)
    def any_requests(num_slots: int, requests: list[tuple[int, int]]):
        pool = RequestPool(make(num_slots), num_slots)
        for node, ends in requests:
            assert admit(pool, node) == []
            if ends < len(pool.running):
                pool.finish(pool.running[ends])
            pool.policy.check()

    any_requests()


def test_the_check_sees_what_first_in_first_out_strands():
    spec = get_policy("conformance-fifo")
    pool = RequestPool(spec.make(4, spec.config()), 4)
    for node in (1, 40):  # 40 stands below 1, by way of 4 and 13
        assert admit(pool, node) == []
        pool.finish(pool.running[0])
    assert admit(pool, 2) == [(1, [4])]
