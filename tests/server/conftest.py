# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Servers with a tiny model, one for each policy that is looked at, and commands.

They see a folder with entry points of policies, as after `pip install` of a plug-in.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installed_fork import require_fork

require_fork()

from tests.engine.entry_points import write_entry_points  # noqa: E402
from tests.engine.tiny_model import ENGINE_ENVIRONMENT, make_tiny_llama  # noqa: E402
from tests.server.command_line import CommandLine  # noqa: E402
from tests.server.server_process import Server  # noqa: E402

FLAGS = [
    "--dtype=float32",
    "--block-size=32",
    "--max-model-len=512",
    "--max-num-batched-tokens=128",
    "--max-num-seqs=6",
    "--num-gpu-blocks-override=64",
    "--enforce-eager",
    "--enable-prompt-tokens-details",
    "--served-model-name=tiny",
]
POLICY_FLAGS = {
    "lru": [],
    "s3fifo": ["--eviction-policy=s3fifo", "--eviction-config.small_ratio", "0.25"],
}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    plugins: Path = write_entry_points(tmp_path_factory.mktemp("plugins"))
    root = str(Path(__file__).parents[2])  # for the classes of the entry points
    path = [str(plugins), root, os.environ.get("PYTHONPATH", "")]
    # The engine core is a process of its own, as it is for a user.
    ours = ENGINE_ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    return (
        os.environ
        | ours
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "VLLM_LOG_STATS_INTERVAL": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_SERVER_DEV_MODE": "1",
        }
    )


@pytest.fixture(scope="session")
def servers(
    model: str, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """By policy; they start together, which takes half the time."""
    logs = tmp_path_factory.mktemp("logs")
    started: dict[str, Server] = {}
    try:
        for policy, flags in POLICY_FLAGS.items():
            log = logs / f"{policy}.log"
            started[policy] = Server(model, FLAGS + flags, environment, log)
        for server in started.values():
            server.wait_until_ready()
        yield started
    finally:
        for server in started.values():
            server.stop()


@pytest.fixture(scope="session")
def vllm(environment: dict[str, str]) -> Iterator[CommandLine]:
    command_line = CommandLine(environment)
    yield command_line
    command_line.stop()
