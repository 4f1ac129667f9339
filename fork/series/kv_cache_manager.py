# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""KV-cache manager: the cached runs behind holes are held and let go."""

from fork.anchors import assignment
from fork.edits import InsertAfter, InsertBefore, InsertFirst
from fork.tree import EditedFile

_NEW_BLOCKS = assignment("new_blocks", calling="self.coordinator.allocate_new_blocks")
_RELEASE = """if self.hole_filler is not None:
    self.hole_filler.release(request)
"""

FILE = EditedFile(
    paths=("vllm/v1/core/kv_cache_manager.py",),
    edits=(
        InsertAfter(
            "no hole filling",
            "KVCacheManager.__init__",
            assignment("self.block_pool"),
            "self.hole_filler = None\n",
        ),
        # The capacity is known to suffice and the prefix is held; the new blocks are
        # not chosen yet.
        InsertBefore(
            "pin",
            "KVCacheManager.allocate_slots",
            _NEW_BLOCKS,
            """if self.hole_filler is not None:
    self.hole_filler.pin(request, num_tokens_need_slot)
""",
        ),
        InsertAfter(
            "tell the worker",
            "KVCacheManager.allocate_slots",
            _NEW_BLOCKS,
            """if self.hole_filler is not None:
    new_blocks = self.hole_filler.with_joined(request, new_blocks)
""",
        ),
        InsertFirst(
            "hits",
            "KVCacheManager.record_prefix_cache_stats",
            """if self.hole_filler is not None:
    num_hits += self.hole_filler.num_tokens_of(request)

""",
        ),
        InsertFirst("release", "KVCacheManager.free", _RELEASE),
        InsertFirst("deferred release", "KVCacheManager.pop_blocks_for_free", _RELEASE),
    ),
)
