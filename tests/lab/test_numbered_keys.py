# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Keys that are numbers make a replay faster and change no figure."""

from dataclasses import replace

import numpy as np
import pytest
from vllm._eviction_C import native_policies, number_keys

from vllm.benchmarks.eviction.grid import run_one
from vllm.benchmarks.eviction.policy_list import parse_policies
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.workloads import P1, Mix, constant, generate


def numbered(trace: Trace) -> Trace:
    numbers = np.empty_like(trace.keys)
    return replace(trace, last_key=number_keys(trace.keys, numbers), keys=numbers)


def test_keys_are_numbered_from_one_in_order_of_first_use():
    keys = np.array([90, 7, 90, 1 << 63, 7, 8], dtype=np.uint64)
    numbers = np.empty_like(keys)
    assert number_keys(keys, numbers) == 4
    assert numbers.tolist() == [1, 2, 1, 3, 2, 4]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return generate(P1.workload, constant(Mix(34, 33, 33), 300), seed=3)


# A sketch, a small table of templates: other keys, other collisions.
HASHES_KEYS = {"wtinylfu", "gittins"}
POLICIES = [*sorted({*native_policies()} - HASHES_KEYS), "adaptive", "belady"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_does_the_same_with_numbers(trace: Trace, policy: str):
    assert trace.last_key == 0
    chosen = parse_policies(policy, None)[0]
    if policy == "adaptive":
        chosen = replace(chosen, config={"candidates": ["lru", "s3fifo", "arc"]})
    named, by_number = (
        run_one(t, 2048, chosen, None) for t in (trace, numbered(trace))
    )
    assert by_number.hits.tolist() == named.hits.tolist()
    assert by_number.evictions == named.evictions > 1000
    assert by_number.switches == named.switches
