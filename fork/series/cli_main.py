# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The command line, before the subcommands are imported: wrong flags, and the lab."""

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
        # The lab needs none of them.
        InsertFirst(
            "early start of the lab",
            "main",
            """if sys.argv[1:3] == ["bench", "eviction"]:
    from vllm.benchmarks.eviction.cli import run

    sys.exit(run(sys.argv[3:]))

""",
        ),
    ),
)
