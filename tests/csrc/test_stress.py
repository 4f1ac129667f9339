# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Builds the stress program under the sanitizers, and runs it.

cmake -S . -B build/stress -DEVICTION_SANITIZE=ON && cmake --build build/stress
build/stress/eviction_stress [SEED]
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/stress"  # kept, so that only what changed is built again

needs_tools = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("c++") is None,
    reason="no CMake or no C++ compiler",
)


def run(*command: str | Path) -> str:
    # vLLM on the CPU preloads libraries, ahead of the sanitizers' own.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (
        f"{command}\n{done.stdout[-4000:]}{done.stderr[-8000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def program() -> Path:
    run(
        "cmake",
        *("-S", ROOT, "-B", BUILD, "-DEVICTION_SANITIZE=ON"),
        # Little optimisation: it is to build fast, and to keep what sanitizers see.
        *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"),
    )
    run("cmake", "--build", BUILD, "--parallel", str(min(2, os.cpu_count() or 1)))
    return BUILD / "eviction_stress"


@needs_tools
@pytest.mark.slow
def test_nothing_breaks_under_the_sanitizers(program: Path):
    done = subprocess.run(program, capture_output=True, text=True)
    faults = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert faults == ["all ok"] and done.returncode == 0, done.stderr[-8000:]
