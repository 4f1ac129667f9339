# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""vllm serve: a wrong flag is reported before a model config is looked up."""

from fork.edits import AddImport, InsertFirst
from fork.tree import EditedFile

FILE = EditedFile(
    paths=(
        "vllm/entrypoints/launchers/cli_args.py",  # up to 0.32
        "vllm/entrypoints/common/cli_args.py",  # since 0.33
    ),
    edits=(
        AddImport("import", "vllm.v1.core.eviction.config", ("check_eviction_args",)),
        InsertFirst(
            "check of the flags",
            "validate_parsed_serve_args",
            "check_eviction_args(args)\n",
        ),
    ),
)
