# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Is the `vllm` that the tests would import the fork?

Without the check a missing installation looks like a bare namespace package, and a
stock vLLM like a hundred import errors.
"""

import importlib.util
from pathlib import Path

import pytest

INSTALL = "run `make install`, and the tests with .venv/bin/python -m pytest"


def has_upstream() -> bool:
    """Whether a whole vLLM is installed, not just the overlay beside it."""
    spec = importlib.util.find_spec("vllm")
    return spec is not None and spec.origin is not None


def require_fork() -> None:
    """Say in one line what is missing, unless overlay and extension are there."""
    spec = importlib.util.find_spec("vllm")
    folders = list(spec.submodule_search_locations or []) if spec else []
    has_overlay = any(
        (Path(f) / "v1/core/eviction/registry.py").exists() for f in folders
    )
    has_core = any(list(Path(f).glob("_eviction_C*")) for f in folders)
    if has_overlay and has_core:
        return
    if not has_upstream():
        raise pytest.UsageError(f"vllm is not installed: {INSTALL}.")
    raise pytest.UsageError(
        f"{folders[0]} is not the fork but another vLLM: {INSTALL}."
    )
