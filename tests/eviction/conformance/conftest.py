# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Every registered policy, by itself and in the live queue.

A test that asks for `make` gets a function that makes the policy for a number of
slots, once for each name and place. A new policy needs no test of its own here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vllm.v1.core.eviction.registry import (
    get_policy,
    policy_names,
    register_policy,
    unregister_policy,
)

PYTHON_POLICY = "conformance-fifo"  # stands for all policies written in Python


def _by_itself(name: str, num_slots: int, **parameters: Any) -> Any:
    spec = get_policy(name)
    return spec.make(num_slots, spec.config(**parameters))


def _in_live_queue(name: str, num_slots: int, **parameters: Any) -> Any:
    from tests.eviction.live_policy import LivePolicy

    return LivePolicy(name, num_slots, parameters)


PLACES = [
    pytest.param(_by_itself, id="by-itself"),
    pytest.param(_in_live_queue, id="live", marks=pytest.mark.needs_upstream),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "policy" in metafunc.fixturenames:
        metafunc.parametrize("policy", [*policy_names(offline=True), PYTHON_POLICY])
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", PLACES)


@pytest.fixture
def make(policy: str, place: Callable[..., Any]) -> Callable[..., Any]:
    def make_policy(num_slots: int, **parameters: Any) -> Any:
        return place(policy, num_slots, **parameters)

    return make_policy


@pytest.fixture(scope="session", autouse=True)
def _python_policy() -> Iterator[None]:
    register_policy(PYTHON_POLICY, "vllm.v1.core.eviction.policy", "Fifo")
    yield
    unregister_policy(PYTHON_POLICY)
