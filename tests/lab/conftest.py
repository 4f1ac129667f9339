# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The lab's command line, run in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm.benchmarks.eviction.cli import run


@pytest.fixture
def lab() -> Callable[..., int]:
    """Run `vllm bench eviction` and return its exit status."""

    def run_words(*words: str | Path) -> int:
        return run([str(word) for word in words])

    return run_words


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write objects, one a line."""

    def written(*lines: Any, name: str = "trace.jsonl") -> Path:
        path = tmp_path / name
        path.write_text(
            "".join(
                (line if isinstance(line, str) else json.dumps(line)) + "\n"
                for line in lines
            )
        )
        return path

    return written
