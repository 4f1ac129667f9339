# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Hit counts are what they were, to the last one: see `golden_counts.py`."""

import json

import pytest
from vllm._eviction_C import native_policies

from tests.eviction.golden_counts import (
    FILE,
    digest_of_traces,
    hits_of_accesses,
    hits_of_requests,
    variants,
)

GOLDEN = json.loads(FILE.read_text())
CASES = [
    pytest.param(label, name, parameters, id=label.replace(" ", "-"))
    for name in native_policies()
    for label, parameters in variants(name).items()
]


def test_the_traces_are_the_same_everywhere():
    """Else all counts differ, and nothing is wrong with the policies."""
    assert digest_of_traces() == GOLDEN["traces"]


def test_every_native_policy_has_golden_counts():
    labels = {label for name in native_policies() for label in variants(name)}
    assert set(GOLDEN["accesses"]) == set(GOLDEN["requests"]) == labels


@pytest.mark.parametrize(("label", "name", "parameters"), CASES)
def test_golden_hits_of_accesses(label: str, name: str, parameters: dict[str, float]):
    assert hits_of_accesses(name, parameters) == GOLDEN["accesses"][label]


@pytest.mark.parametrize(("label", "name", "parameters"), CASES)
def test_golden_hits_of_requests(label: str, name: str, parameters: dict[str, float]):
    assert hits_of_requests(name, parameters) == GOLDEN["requests"][label]
