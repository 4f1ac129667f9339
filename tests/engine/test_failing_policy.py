# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy that fails in the middle of serving costs hits, and nothing else."""

import pytest

from tests.engine.conftest import OFF, Served
from tests.engine.entry_points import FAILING
from tests.engine.failing_policies import GOOD_CALLS
from tests.engine.test_same_tokens import assert_same_tokens

pytestmark = pytest.mark.parametrize("failing", FAILING)


def test_no_token_changes(failing: str, served: Served) -> None:
    report = served("llama", failing)
    assert report.failure, "the policy did not fail: the test shows nothing"
    assert_same_tokens(report, served("llama", OFF))


def test_the_cache_goes_on_to_hit_and_to_evict(failing: str, served: Served) -> None:
    report = served("llama", failing)
    assert report.answers["preempted"][0].num_cached > 0
    assert report.evictions is not None and report.evictions > 2 * GOOD_CALLS


def test_one_line_says_which_policy_failed_and_why(
    failing: str, served: Served
) -> None:
    report = served("llama", failing)
    (line,) = report.lines("ERROR", "")
    assert failing in line and "LRU" in line and "\n" not in line
    assert report.failure.strip().splitlines()[-1] in line


def test_metrics_count_the_failure_and_name_lru(failing: str, served: Served) -> None:
    metrics = served("llama", failing).metrics
    assert metrics["vllm:prefix_cache_eviction_policy_failures"] == 1
    assert metrics["vllm:prefix_cache_eviction_policy/lru"] == 1
    assert metrics[f"vllm:prefix_cache_eviction_policy/{failing}"] == 0
