# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""EngineCore: the utility call behind `GET` and `POST /eviction`."""

from fork.anchors import definition
from fork.edits import AddImport, InsertAfter
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/v1/engine/core.py",),
    edits=(
        AddImport("import", "vllm.v1.core.eviction.attach", ("control_eviction",)),
        InsertAfter(
            "operator's call",
            "EngineCore",
            definition("reset_prefix_cache"),
            """
def eviction_control(self, command: dict[str, Any]) -> dict[str, Any]:
    return control_eviction(self.scheduler, command)
""",
        ),
    ),
)
