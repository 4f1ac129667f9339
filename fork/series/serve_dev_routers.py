# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The server's development routes: `/eviction`."""

from fork.anchors import call
from fork.edits import InsertAfter
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/entrypoints/serve/__init__.py",),
    edits=(
        InsertAfter(
            "eviction route",
            "register_vllm_dev_api_routers",
            call("attach_sleep_router"),
            """
from .dev.eviction.api_router import attach_router as attach_eviction_router

attach_eviction_router(app)
""",
        ),
    ),
)
