# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The command line: a wrong flag is reported before the subcommands are imported."""

from fork.edits import InsertFirst
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/entrypoints/cli/main.py",),
    edits=(
        # Upstream imports every subcommand here, which takes ten seconds.
        InsertFirst(
            "early check of the flags",
            "main",
            """from vllm.v1.core.eviction.config import check_eviction_argv

check_eviction_argv(sys.argv[1:])

""",
        ),
    ),
)
