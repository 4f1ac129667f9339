# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""CacheConfig: the fields behind the flags, and their validation."""

from fork.anchors import assignment, definition
from fork.edits import AddElements, AddFields, InsertAfter, InsertFirst, WrapReturn
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/config/cache.py",),
    edits=(
        # The docstrings become the flags' help. A string is inserted as it stands, so
        # its further lines bring their indentation.
        AddFields(
            "eviction fields",
            "CacheConfig",
            assignment("prefix_caching_hash_algo"),
            '''eviction_policy: str = "lru"
"""Policy that chooses which cached block the engine's own prefix cache (the KV
    cache in GPU or CPU memory, not a tier that KV cache is offloaded to) evicts
    next."""
eviction_config: dict[str, Any] = field(default_factory=dict)
"""Parameters of the eviction policy of the engine's own prefix cache, by name.
    Which there are depends on `eviction_policy`."""
eviction_window: float | None = None
"""Seconds between the decisions of `--eviction-policy adaptive`; the first ones
    come sooner. Without it the policy is chosen continuously, which is better."""
eviction_trace_file: str | None = None
"""Record every admitted request's lengths and block ids, keyed with a secret of
    the run, to this file as JSON lines; compressed if it ends in .gz or .zst.
    Replay it with `vllm bench eviction`."""
hole_filling: Literal["auto", "off", "require"] = "auto"
"""Whether cached blocks behind a missing one are reused, and only what is missing is
    computed. `auto`: with the eviction policies that leave holes on purpose, where the
    model and the other features allow it. `require`: with every policy, or not at
    all: the engine does not start where it is impossible."""
''',
        ),
        # Imported late: the config is imported before anything of v1.core is.
        InsertAfter(
            "eviction validator",
            "CacheConfig",
            definition("metrics_info"),
            """
@model_validator(mode="after")
def _validate_eviction(self) -> "CacheConfig":
    from vllm.v1.core.eviction.config import validate_eviction

    validate_eviction(
        self.eviction_policy, self.eviction_config, self.eviction_window
    )
    return self
""",
        ),
        # The policy decides which block is evicted, never what is compiled.
        AddElements(
            "compile-cache hash ignores eviction",
            "CacheConfig.compute_hash",
            "ignored_factors",
            (
                "eviction_policy",
                "eviction_config",
                "eviction_window",
                "eviction_trace_file",
                "hole_filling",
            ),
        ),
        # Every field becomes a label of vllm:cache_config_info.
        InsertFirst(
            "import for the labels",
            "CacheConfig.metrics_info",
            """from vllm.v1.core.eviction.config import public_info

""",
        ),
        WrapReturn(
            "labels without private values", "CacheConfig.metrics_info", "public_info"
        ),
    ),
)
