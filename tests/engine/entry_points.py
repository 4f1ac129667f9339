# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Policies in Python that reach the engine the way a user's own would.

A distribution in a folder of its own declares them as entry points, so every
process that has the folder on its path knows them: the engine of a test and a
server alike.
"""

from pathlib import Path

#: A policy that works, and is as good as any for what a test wants to see.
PYTHON_FIFO = "test-fifo"

#: Policies with a bug, by what is wrong with them.
FAILING = {
    "test-fails-in-victim": "FailsInVictim",
    "test-fails-in-insert": "FailsInInsert",
    "test-fails-in-admit": "FailsInAdmit",
    "test-names-a-block-in-use": "NamesABlockInUse",
}


def write_entry_points(folder: Path) -> Path:
    """Write the metadata of a distribution that consists of entry points.

    Args:
        folder: To be put on the path of a process.

    Returns:
        The folder.

    """
    metadata = folder / "eviction_test_policies-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: eviction-test-policies\nVersion: 1.0\n"
    )
    lines = ["[vllm.eviction_policies]"]
    lines.append(f"{PYTHON_FIFO} = vllm.v1.core.eviction.policy:Fifo")
    for name, class_name in FAILING.items():
        lines.append(f"{name} = tests.engine.failing_policies:{class_name}")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
