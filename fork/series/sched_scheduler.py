# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Scheduler: attach the policy, and tell it what the requests do."""

from fork.anchors import assignment, call
from fork.edits import AddImport, AddKeywords, InsertAfter, InsertBefore, InsertFirst
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/v1/core/sched/scheduler.py",),
    edits=(
        AddImport("import", "vllm.v1.core.eviction.attach", ("attach_eviction",)),
        InsertAfter(
            "attach",
            "Scheduler.__init__",
            assignment("self.kv_cache_manager"),
            "self.eviction = attach_eviction(self)\n",
        ),
        InsertAfter(
            "step",
            "Scheduler.schedule",
            call("self.kv_cache_manager.new_step_starts"),
            """if self.eviction is not None:
    self.eviction.step(scheduled_timestamp)
""",
        ),
        # Beside upstream's own count, not in it: that returns early when statistics
        # are off. It stands after allocate_slots: victims precede the admission.
        InsertAfter(
            "admission",
            "Scheduler.schedule",
            call("self.kv_cache_manager.record_prefix_cache_stats"),
            """if self.eviction is not None:
    self.eviction.admit(request, num_new_local_computed_tokens)
""",
        ),
        # Not in _free_request_blocks, which serves preemption as well.
        InsertBefore(
            "end of a request",
            "Scheduler._free_blocks",
            call("self._free_request_blocks"),
            """if self.eviction is not None:
    self.eviction.finish(request)
""",
        ),
        InsertAfter(
            "reset",
            "Scheduler.reset_prefix_cache",
            assignment(
                "reset_successful", calling="self.kv_cache_manager.reset_prefix_cache"
            ),
            """if reset_successful and self.eviction is not None:
    self.eviction.reset()
""",
        ),
        # Both loops come through here, after all other limits of a chunk.
        InsertFirst(
            "end a chunk where a cached run begins",
            "Scheduler._reserve_prefill_lookahead",
            """if self.kv_cache_manager.hole_filler is not None:
    num_new_tokens = self.kv_cache_manager.hole_filler.clip(
        request, num_computed_tokens, num_new_tokens
    )

""",
        ),
        # Before anything asks whether the prefill is over.
        InsertBefore(
            "go on behind a cached run",
            "Scheduler._update_after_schedule",
            assignment("request.is_prefill_chunk"),
            """if self.kv_cache_manager.hole_filler is not None:
    self.kv_cache_manager.hole_filler.jump(request)
""",
        ),
        AddKeywords(
            "statistics",
            "Scheduler.make_stats",
            "SchedulerStats",
            {
                "eviction_stats": """(
    self.eviction.make_stats() if self.eviction is not None else None
)"""
            },
        ),
        InsertFirst(
            "shutdown",
            "Scheduler.shutdown",
            """if self.eviction is not None:
    self.eviction.shutdown()

""",
        ),
    ),
)
