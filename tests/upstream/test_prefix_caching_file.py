# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Upstream's own tests of the prefix cache pass on the fork as on the stock release.

The file that matters most of those that `make test-upstream` runs, here so that every
run of the tests has it.
"""

import subprocess
import sys

import pytest

from tests.upstream.fetch import REPOSITORY


@pytest.mark.needs_upstream
@pytest.mark.parametrize(
    "forced",
    [
        pytest.param(["--policy", "lru"], id="lru"),
        pytest.param(["--policy", "lru", "--replace-lru"], id="lru in C++"),
        pytest.param(["--policy", "s3fifo"], id="s3fifo"),
    ],
)
def test_same_passes_as_the_unmodified_release(forced: list[str]) -> None:
    command = [sys.executable, "-m", "tests.upstream.run", "test_prefix_caching"]
    done = subprocess.run(
        [*command, *forced], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
