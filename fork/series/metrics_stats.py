# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""SchedulerStats: what the engine core counts, on its way to the front end."""

from fork.anchors import assignment
from fork.edits import AddFields
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/v1/metrics/stats.py",),
    edits=(
        AddFields(
            "eviction statistics",
            "SchedulerStats",
            assignment("kv_cache_eviction_events"),
            "eviction_stats: dict[str, Any] | None = None\n",
        ),
    ),
)
