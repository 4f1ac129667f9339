# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""pytest plugin: writes each test's outcome to a file as soon as it is known.

One line a test, ``outcome<TAB>node id<TAB>reason``, so that the runner can follow a
file that takes minutes and still has what was found if pytest itself dies.

It also gives every test upstream's own mark ``skip_global_cleanup``. The clean-up that
follows a test otherwise is for tests that start workers; it walks all objects of torch
and vLLM, and that takes two hundred times as long as the core's tests themselves.
"""

import os
from pathlib import Path

import pytest

OUTCOMES = Path(os.environ["UPSTREAM_TEST_OUTCOMES"])

_SEVERITY = ("passed", "skipped", "failed")

#: Of the running test: its worst outcome so far, and the first line of why.
_worst: dict[str, tuple[str, str]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spares the core's tests the clean-up after workers that they never start."""
    for item in items:
        item.add_marker("skip_global_cleanup")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps the worst of set-up, call and tear-down; writes it after the last."""
    worst = _worst.get(report.nodeid, ("passed", ""))
    if _SEVERITY.index(report.outcome) > _SEVERITY.index(worst[0]):
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr)
        worst = (report.outcome, message.partition("\n")[0].replace("\t", " "))
    _worst[report.nodeid] = worst
    if report.when == "teardown":
        outcome, reason = _worst.pop(report.nodeid)
        with OUTCOMES.open("a") as file:
            file.write(f"{outcome}\t{report.nodeid}\t{reason}\n")
