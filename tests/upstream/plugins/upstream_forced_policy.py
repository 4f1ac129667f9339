# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""pytest plugin: runs upstream's tests under an eviction policy they never name.

Two things are forced. Every ``CacheConfig`` gets the policy, so that each
scheduler under test attaches it as the server would, with all its observations.
And every ``BlockPool`` starts with the policy's queue, because many tests build a
pool or a KV-cache manager without a scheduler. Subclasses are pools of other memory
and keep LRU, as in the product.

A policy that raises is replaced by LRU order and serving goes on. Here that would
hide an error, so a queue that reports a failure fails its test.

The environment says what to force: ``UPSTREAM_TEST_POLICY`` names the policy,
``UPSTREAM_TEST_REPLACE_LRU=1`` forces the C++ LRU in the place of upstream's
queue, which otherwise stays under ``lru``.
"""

import functools
import os
from typing import Any

import pytest
from vllm.config.cache import CacheConfig
from vllm.v1.core.block_pool import BlockPool

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue, install

POLICY = os.environ["UPSTREAM_TEST_POLICY"]
REPLACE_LRU = os.environ.get("UPSTREAM_TEST_REPLACE_LRU") == "1"

#: Queues made by the test that is running.
_queues: list[PolicyFreeQueue] = []


def _force() -> None:
    cache_config_init = CacheConfig.__init__
    block_pool_init = BlockPool.__init__
    queue_init = PolicyFreeQueue.__init__

    @functools.wraps(cache_config_init)
    def cache_config(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("eviction_policy", POLICY)
        cache_config_init(self, *args, **kwargs)

    @functools.wraps(block_pool_init)
    def block_pool(self: Any, *args: Any, **kwargs: Any) -> None:
        block_pool_init(self, *args, **kwargs)
        if type(self) is BlockPool:
            install(self, POLICY, replace_lru=REPLACE_LRU)

    @functools.wraps(queue_init)
    def queue(self: Any, *args: Any, **kwargs: Any) -> None:
        queue_init(self, *args, **kwargs)
        _queues.append(self)

    CacheConfig.__init__ = cache_config  # type: ignore[method-assign]
    BlockPool.__init__ = block_pool  # type: ignore[method-assign]
    PolicyFreeQueue.__init__ = queue  # type: ignore[method-assign]


_force()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fails a test in which a policy failed."""
    failures = [queue.failure for queue in _queues if queue.failure]
    _queues.clear()
    if failures:
        pytest.fail(f"the policy {POLICY} failed in {item.nodeid}: {failures[0]}")
