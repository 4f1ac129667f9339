# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""EngineArgs: the flags, and their way into CacheConfig."""

from fork.anchors import assignment
from fork.edits import AddFields, AddImport, AddKeywords, InsertAfter, InsertFirst
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/engine/arg_utils.py",),
    edits=(
        AddImport(
            "import",
            "vllm.v1.core.eviction.config",
            ("add_eviction_args", "check_eviction_args"),
        ),
        AddFields(
            "eviction fields",
            "EngineArgs",
            assignment("prefix_caching_hash_algo"),
            """eviction_policy: str = CacheConfig.eviction_policy
eviction_config: dict[str, Any] = get_field(CacheConfig, "eviction_config")
eviction_window: float | None = CacheConfig.eviction_window
eviction_trace_file: str | None = CacheConfig.eviction_trace_file
hole_filling: Literal["auto", "off", "require"] = CacheConfig.hole_filling
""",
        ),
        InsertAfter(
            "eviction flags",
            "EngineArgs.add_cli_args",
            assignment("cache_group"),
            "add_eviction_args(cache_group, cache_kwargs)\n",
        ),
        # Every command line that makes an engine comes through here.
        InsertFirst(
            "check of the flags",
            "EngineArgs.from_cli_args",
            "check_eviction_args(args)\n",
        ),
        AddKeywords(
            "flags to CacheConfig",
            "EngineArgs.create_engine_config",
            "CacheConfig",
            {
                "eviction_policy": "self.eviction_policy",
                "eviction_config": "self.eviction_config",
                "eviction_window": "self.eviction_window",
                "eviction_trace_file": "self.eviction_trace_file",
                "hole_filling": "self.hole_filling",
            },
        ),
    ),
)
