# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Real engines with tiny models: one process for all, each engine started once.

A test takes what it needs from `served`, which serves the same prompts with any
model and policy and keeps the report. The policies are those of the registry.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.installed_fork import require_fork

require_fork()

from tests.engine.engine_process import EngineProcess  # noqa: E402
from tests.engine.entry_points import PYTHON_FIFO, write_entry_points  # noqa: E402
from tests.engine.serving import Report, Setup, serve  # noqa: E402
from tests.engine.tiny_model import make_tiny_hybrid, make_tiny_llama  # noqa: E402
from tests.engine.traffic import Scale  # noqa: E402
from vllm.v1.core.eviction.registry import (  # noqa: E402
    DEFAULT_POLICY,
    MANAGER,
    policy_names,
)

#: Not policies, but what they are compared with. `off`: prefix caching is off.
#: `other chunks`: off too, and prompts are cut into chunks of another length.
#: `roomy`: `lru` in a pool in which nothing is ever evicted.
OFF, OTHER_CHUNKS, ROOMY = "off", "other chunks", "roomy"

_SETTINGS: dict[str, dict[str, Any]] = {
    OFF: {"enable_prefix_caching": False},
    OTHER_CHUNKS: {"enable_prefix_caching": False, "max_num_batched_tokens": 80},
    ROOMY: {"num_gpu_blocks_override": 4096},
    # So eager that the policy changes many times while the tests serve.
    MANAGER: {
        "eviction_policy": MANAGER,
        "eviction_config": {
            "interval": 0.05,
            "half_life": 0.3,
            "errors": 0.0,
            "min_lead": 0.0,
        },
    },
}

Served = Callable[[str, str], Report]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test with `policy` runs under all of them, with `chooser` under those
    that replace vLLM's own queue, and with `kind` with both kinds of model."""
    policies = [*policy_names(), MANAGER, PYTHON_FIFO]
    values = {
        "kind": ["llama", "hybrid"],
        "policy": policies,
        "chooser": [name for name in policies if name != DEFAULT_POLICY],
    }
    for name, members in values.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, members)


@pytest.fixture(scope="session")
def setups(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Setup]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "llama": Setup(
            str(make_tiny_llama(folder / "llama")),
            Scale(prefix=128, suffix=(20, 90), flood=(60, 250)),
            num_blocks=64,
            num_batches=12,
            at_once=8,
            long_outputs=(6, 200),
        ),
        # Many prompts are longer than the sliding window of 256 tokens. Few at once:
        # each takes so many blocks that little would stay for what is not in use.
        "hybrid": Setup(
            str(make_tiny_hybrid(folder / "hybrid")),
            Scale(prefix=160, suffix=(10, 150), flood=(60, 350)),
            num_blocks=280,
            num_batches=6,
            at_once=3,
            long_outputs=(6, 100),
        ),
    }


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """Runs the jobs of `serving`."""
    process = EngineProcess(write_entry_points(tmp_path_factory.mktemp("plugins")))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def served(engines: EngineProcess, setups: dict[str, Setup]) -> Served:
    """Call with the kind of model and a policy, or one of the names above."""
    reports: dict[tuple[str, str], Report] = {}

    def report(kind: str, name: str) -> Report:
        if (kind, name) not in reports:
            settings = _SETTINGS.get(name, {"eviction_policy": name})
            reports[kind, name] = engines.run(serve, setups[kind], settings)
        return reports[kind, name]

    return report
