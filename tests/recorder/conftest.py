# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The recorder alone, under the real scheduler, and behind a real server."""

import logging
import os
from collections.abc import Iterator

os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import pytest

from tests.installed_fork import require_fork


def pytest_configure() -> None:
    require_fork()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def warnings_logged() -> Iterator[list[str]]:
    """What the recorder logs at WARNING or above. (vLLM's loggers do not pass
    records on to the root, where pytest's own fixture looks.)"""
    handler = _Lines()
    loggers = [
        logging.getLogger(f"vllm.v1.core.eviction.{name}")
        for name in ("recorder", "record_file", "hooks", "attach")
    ]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.lines
    for logger in loggers:
        logger.removeHandler(handler)
