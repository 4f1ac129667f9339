# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""An engine of the harness, and the time that its scheduler takes."""

import time
from collections.abc import Callable
from typing import Any

from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine


def make_engine(
    trace: Trace,
    num_blocks: int,
    policy: str,
    into: Callable[[float], None],
    config: dict[str, Any] | None = None,
) -> VirtualEngine:
    """An engine whose scheduler's time, seconds of its thread, is given to `into`.

    Raises:
        ValueError: No such policy; one line.

    """
    options = {"eviction_policy": policy, "eviction_config": config or {}}
    engine = VirtualEngine(trace, num_blocks, options)
    # The harness counts evictions of upstream's queue; here it must not pay for it.
    pool = engine.scheduler.kv_cache_manager.block_pool
    vars(pool.free_block_queue).pop("popleft_n", None)
    add_time(engine.scheduler, ("schedule", "update_from_output"), into)
    return engine


def add_time(owner: Any, names: tuple[str, ...], into: Callable[[float], None]) -> None:
    """Have the time of each call, seconds of this thread, given to `into`."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                into(time.thread_time() - start)

        return timed

    for name in names:
        setattr(owner, name, wrap(getattr(owner, name)))
