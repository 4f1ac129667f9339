# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The `vllm` command says that it is the fork, and what its flags are."""

import re
from importlib.metadata import version

import pytest

from tests.engine.entry_points import PYTHON_FIFO
from tests.server.command_line import CommandLine
from vllm.v1.core.eviction.registry import MANAGER, policy_names

pytestmark = pytest.mark.timeout(900)


def test_the_version_names_the_fork(vllm: CommandLine) -> None:
    outcome = vllm("--version")
    assert outcome.status == 0
    assert outcome.output.split()[-1] == version("vllm")
    assert re.fullmatch(r"\d+\.\d+\.\d+\+eviction\d+(\.cpu)?", version("vllm"))


def test_the_help_names_every_policy_and_says_which_cache_it_is(
    vllm: CommandLine,
) -> None:
    # Afresh, because upstream reads the docstrings only when it sees --help.
    outcome = vllm.fresh("serve", "--help=CacheConfig")
    assert outcome.status == 0
    text = " ".join(outcome.output.split())
    text = text.replace("- ", "-")  # lines also break within a name
    about = text.partition("--eviction-policy NAME")[2].partition(" --eviction-")[0]
    for name in [*policy_names(), MANAGER, PYTHON_FIFO]:
        assert f" {name}" in about
    assert "engine's own prefix cache" in about
