# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The live queue under upstream's real classes, without an engine or a model.

Every test takes the policies from the registry, so that a new one is held to the
same contract, and a policy in Python stands among them.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from scheduler_fixtures import model, root_of_all_hashes

from vllm.v1.core.eviction.registry import (
    DEFAULT_POLICY,
    get_policy,
    policy_names,
    register_policy,
    unregister_policy,
)

__all__ = ["model", "root_of_all_hashes"]

PYTHON_FIFO = "test-fifo"
LISTENER = "test-listener"

# Fuzzing finds a new fault at any time, but a failing test must fail again.
settings.register_profile(
    "eviction",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("eviction")


def _remembers(name: str) -> bool:
    """Whether it remembers what it evicts of blocks that were used once.

    LeCaR does not: its experts agree on them.
    """
    spec = get_policy(name)
    policy = spec.make(8, spec.config())
    for slot in range(8):
        policy.insert(slot, 1 + slot)
    policy.victim()
    return policy.num_ghosts > 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Fixtures of names: every `policy`, a `chooser` is one that is not LRU, a
    `rememberer` one that keeps ghosts of blocks that were used once."""
    names = [*policy_names(), PYTHON_FIFO]
    groups = {
        "policy": names,
        "chooser": [name for name in names if name != DEFAULT_POLICY],
        "rememberer": [name for name in policy_names() if _remembers(name)],
    }
    for fixture, members in groups.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, members)


@pytest.fixture(scope="session", autouse=True)
def _python_policies() -> Iterator[None]:
    register_policy(PYTHON_FIFO, "vllm.v1.core.eviction.policy", "Fifo")
    register_policy(LISTENER, "listening_policy", "Listener")
    yield
    unregister_policy(LISTENER)
    unregister_policy(PYTHON_FIFO)
