# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What every test of a real scheduler needs, for the `conftest.py` of its folder."""

import os
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # each reset logs a line

import pytest
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import init_none_hash


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that only a scheduler can use."""
    from real_scheduler import write_model

    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session", autouse=True)
def root_of_all_hashes() -> None:
    init_none_hash(sha256)
