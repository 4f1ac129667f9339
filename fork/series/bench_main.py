# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""vllm bench: the lab is one of its subcommands."""

from fork.edits import InsertFirst
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/entrypoints/cli/benchmark/main.py",),
    edits=(
        # A subcommand registers itself when its module is imported.
        InsertFirst(
            "eviction subcommand",
            "_import_bench_subcommand_modules",
            "import vllm.entrypoints.cli.benchmark.eviction  # noqa: F401\n",
        ),
    ),
)
