# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What an engine logs and counts about its eviction policy."""

import re

from tests.engine.conftest import OFF, Served
from tests.engine.entry_points import PYTHON_FIFO
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER, get_policy

LIVE = "vllm:prefix_cache_eviction_policy/"
COUNTED_BY_A_POLICY = (
    "vllm:prefix_cache_evictions",
    "vllm:prefix_cache_evicted_rereferences",
    "vllm:prefix_cache_eviction_policy_failures",
)


def test_the_log_says_policy_blocks_and_memory_at_start(
    kind: str, chooser: str, served: Served
) -> None:
    lines = served(kind, chooser).lines("INFO", f"eviction policy: {chooser}")
    at_start = [line for line in lines if "MiB" in line]
    assert len(at_start) == 1
    assert re.search(r"\d+ blocks, \d+\.\d MiB", at_start[0])


def test_lru_is_upstreams_own_and_says_nothing(kind: str, served: Served) -> None:
    report = served(kind, DEFAULT_POLICY)
    assert report.queue == "FreeKVCacheBlockQueue"
    assert not report.lines("INFO", "eviction policy")


def test_no_policy_warns_or_fails(kind: str, policy: str, served: Served) -> None:
    report = served(kind, policy)
    assert not report.failure
    assert not report.lines("ERROR", "")
    assert not report.lines("WARNING", "viction")


def test_hits_are_those_of_the_requests(kind: str, policy: str, served: Served) -> None:
    """An aborted request is counted too, but its answer is not among ours."""
    report = served(kind, policy)
    assert report.metrics["vllm:prefix_cache_hits"] >= report.num_hit_tokens


def test_evictions_are_those_of_the_queue(
    kind: str, chooser: str, served: Served
) -> None:
    report = served(kind, chooser)
    assert report.evictions
    assert report.metrics["vllm:prefix_cache_evictions"] == report.evictions
    assert report.metrics["vllm:prefix_cache_eviction_policy_failures"] == 0


def test_returns_of_what_was_evicted_are_counted_where_they_are_remembered(
    kind: str, served: Served
) -> None:
    for policy in ("s3fifo", "arc"):
        assert get_policy(policy).ghosts
        name = "vllm:prefix_cache_evicted_rereferences"
        assert served(kind, policy).metrics[name] > 0
    for policy in ("sieve", PYTHON_FIFO):
        assert name not in served(kind, policy).metrics


def test_what_lru_does_not_count_is_absent(kind: str, served: Served) -> None:
    for name in (DEFAULT_POLICY, OFF):
        metrics = served(kind, name).metrics
        assert not set(COUNTED_BY_A_POLICY) & metrics.keys()


def test_one_policy_is_the_live_one(kind: str, policy: str, served: Served) -> None:
    metrics = served(kind, policy).metrics
    live = {
        name.removeprefix(LIVE): value
        for name, value in metrics.items()
        if name.startswith(LIVE)
    }
    assert sorted(live.values()) == [0.0] * (len(live) - 1) + [1.0]
    if policy != MANAGER:
        assert live == {policy: 1.0}


def test_without_prefix_caching_no_policy_is_live(kind: str, served: Served) -> None:
    assert not [name for name in served(kind, OFF).metrics if name.startswith(LIVE)]
