# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The one seam with the scheduler.

`attach_eviction` puts the policy in place when the scheduler is built; the hooks
tell it what requests do. Under `lru` there are no hooks, unless a trace is recorded,
and upstream's queue is not touched.
"""

from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from vllm.v1.core.eviction.config import may_fill_holes
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler

    from vllm.v1.core.eviction.hooks import Hooks

logger = init_logger(__name__)


def attach_eviction(scheduler: "Scheduler") -> "Hooks | None":
    """Put the configured policy in the place of the engine's free queue.

    Args:
        scheduler: Its KV-cache manager is built; nothing else needs to be.

    Returns:
        What the scheduler calls, or None when there is nothing to tell: under `lru`
        without a recording. What cannot be set up is logged and left out; it does
        not stop the engine.

    Raises:
        ValueError: `--hole-filling require` cannot be had; one line.

    """
    cache_config = scheduler.vllm_config.cache_config
    name = cache_config.eviction_policy
    path = cache_config.eviction_trace_file
    scheduler.kv_cache_manager.hole_filler = _make_hole_filler(scheduler)
    if name == DEFAULT_POLICY and path is None:
        return None
    pool = scheduler.kv_cache_manager.block_pool
    if not pool.enable_caching:
        for flag, value in (("policy", name), ("trace-file", path)):
            if value not in (DEFAULT_POLICY, None):
                logger.warning(
                    "--eviction-%s %s is ignored: prefix caching is off, "
                    "or the model does not support it.",
                    flag,
                    value,
                )
        return None
    from vllm.v1.core.eviction.hooks import Hooks

    if name == DEFAULT_POLICY:
        hooks = Hooks(scheduler.kv_cache_manager)
    else:
        hooks = _attach_policy(scheduler, name)
    if path is not None:
        try:
            hooks.recorder = _start_recorder(scheduler, path)
        except Exception:
            logger.exception("The eviction trace file %s is not written.", path)
    return hooks


def _attach_policy(scheduler: "Scheduler", name: str) -> "Hooks":
    from vllm.v1.core.eviction.hooks import Hooks, attach_policy

    try:
        if name == MANAGER:
            from vllm.v1.core.eviction.adaptive import attach_adaptive

            return attach_adaptive(scheduler)
        return attach_policy(scheduler, name)
    except ValueError as error:
        # Known when the model is known: nothing that the flags could have told.
        logger.error("Eviction policy %s: %s. LRU stays.", name, error)
        failure = str(error)
    except Exception as error:
        logger.exception("Eviction policy %s could not be built; LRU stays.", name)
        failure = repr(error)
    return Hooks(scheduler.kv_cache_manager, name, failure)


def _make_hole_filler(scheduler: "Scheduler") -> Any:
    cache_config = scheduler.vllm_config.cache_config
    try:
        if not may_fill_holes(cache_config):
            return None
        from vllm.v1.core.eviction.hole_limits import make_hole_filler

        return make_hole_filler(scheduler)
    except Exception:
        if cache_config.hole_filling == "require":
            raise
        logger.exception("Holes in cached prefixes are not filled.")
        return None


def _start_recorder(scheduler: "Scheduler", path: str) -> Any:
    from vllm.v1.core.eviction.rank_file import path_of_rank
    from vllm.v1.core.eviction.recorder import Recorder

    path = path_of_rank(path, scheduler.vllm_config.parallel_config)
    logger.info("Recording admitted requests to %s.", path)
    return Recorder(path, scheduler.kv_cache_manager.block_pool.hash_block_size)


def control_eviction(scheduler: "Scheduler", command: dict[str, Any]) -> dict[str, Any]:
    """Obey an operator, also where there is no policy of ours.

    Returns:
        The status, or `{"error": ...}` with one line. Never raises: the caller is
        the engine core.

    """
    from vllm.v1.core.eviction.hooks import Hooks

    hooks = getattr(scheduler, "eviction", None)
    try:
        if hooks is None:
            manager = scheduler.kv_cache_manager
            policy = scheduler.vllm_config.cache_config.eviction_policy
            is_off = not manager.block_pool.enable_caching
            hooks = Hooks(manager, policy, "prefix caching is off" if is_off else None)
        return hooks.control(command)
    except ValueError as error:
        return {"error": str(error)}
    except Exception as error:
        logger.exception("Eviction control failed.")
        return {"error": repr(error)}
