# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What holds for all tests: `pytest.ini` has the settings."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.installed_fork import has_upstream

# A failing test must fail again, so the default draws the same examples each time.
# HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("search", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_upstream") and not has_upstream():
        pytest.skip("vLLM's own classes are not installed")
