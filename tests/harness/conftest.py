# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Vllm's real scheduler under a virtual clock.

What takes minutes is marked `slow` and runs with `-m slow`.
"""

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # a config logs ten lines

import pytest

from fork import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))  # its modules import each other by name


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if config.option.markexpr:
        return
    for item in items:
        if "tests/harness" in item.path.as_posix() and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with -m slow"))
