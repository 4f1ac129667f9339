# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm serve --eviction-policy`: answers, metrics and log lines, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.engine.traffic import Prompt, Scale, Traffic
from tests.server.server_process import Server

pytestmark = pytest.mark.timeout(900)

COUNTERS = {
    "vllm:prefix_cache_evictions_total",
    "vllm:prefix_cache_evicted_rereferences_total",
    "vllm:prefix_cache_eviction_policy_failures_total",
}
LIVE = "vllm:prefix_cache_eviction_policy"


@dataclass
class Served:
    """What the servers answered to the same prompts.

    Attributes:
        texts: By policy, in the order of the prompts.
        num_cached: By policy, prompt tokens that were found in the cache.

    """

    texts: dict[str, list[str]]
    num_cached: dict[str, int]


@pytest.fixture(scope="module")
def served(servers: dict[str, Server]) -> Served:
    """Floods and returning prefixes, a batch at a time."""
    result = Served({}, {})
    for policy, server in servers.items():
        traffic = Traffic(Scale(prefix=128, suffix=(20, 90), flood=(60, 250)))
        result.texts[policy] = []
        result.num_cached[policy] = 0
        for _ in range(8):
            for text, num_cached in _complete(server, traffic.batch()):
                result.texts[policy].append(text)
                result.num_cached[policy] += num_cached
    return result


def _complete(server: Server, prompts: list[Prompt]) -> list[tuple[str, int]]:
    def complete(prompt: Prompt) -> tuple[str, int]:
        answer = server.post(
            "/v1/completions",
            model="tiny",
            prompt=prompt,
            max_tokens=8,
            temperature=0,
            ignore_eos=True,
            return_token_ids=True,
        )
        details = answer["usage"]["prompt_tokens_details"] or {}
        return str(answer["choices"][0]["token_ids"]), details.get("cached_tokens", 0)

    with ThreadPoolExecutor(len(prompts)) as clients:
        return list(clients.map(complete, prompts))


def test_answers_are_those_of_lru(served: Served) -> None:
    assert len(set(served.texts["lru"])) > len(served.texts["lru"]) // 2
    assert served.texts["s3fifo"] == served.texts["lru"]


def test_the_policy_hits_and_chooses_by_itself(served: Served) -> None:
    assert served.num_cached["s3fifo"] > 0
    assert served.num_cached["s3fifo"] != served.num_cached["lru"]


def test_metrics_count_evictions_and_returns(
    served: Served, servers: dict[str, Server]
) -> None:
    samples = servers["s3fifo"].samples()
    for name in COUNTERS:
        ((labels, value),) = samples[name]
        assert labels == {"model_name": "tiny", "engine": "0"}
        assert value == 0 if "failures" in name else value > 0


def test_metrics_name_the_live_policy(servers: dict[str, Server]) -> None:
    for policy, server in servers.items():
        ((labels, value),) = server.samples()[LIVE]
        assert (labels["policy"], value) == (policy, 1)


def test_under_lru_what_nobody_counts_is_absent(
    served: Served, servers: dict[str, Server]
) -> None:
    assert not COUNTERS & servers["lru"].samples().keys()


def test_the_cache_config_has_the_policy_as_a_label_and_not_its_parameters(
    servers: dict[str, Server],
) -> None:
    ((labels, _),) = servers["s3fifo"].samples()["vllm:cache_config_info"]
    assert labels["eviction_policy"] == "s3fifo"
    assert "eviction_config" not in labels
    assert "small_ratio" not in str(labels)


def test_the_log_says_at_start_what_was_chosen(servers: dict[str, Server]) -> None:
    lines = [
        line
        for line in servers["s3fifo"].log.splitlines()
        if "eviction policy: s3fifo" in line and "MiB" in line
    ]
    assert len(lines) == 1
    assert "small_ratio" in lines[0] and "0.25" in lines[0]


def test_the_periodic_log_has_a_line_for_a_policy_that_is_not_lru(
    served: Served, servers: dict[str, Server]
) -> None:
    line = servers["s3fifo"].wait_for_log("Evictions: ")
    assert "Prefix cache eviction policy: s3fifo" in line
    assert "Evicted and asked for again" in line
    servers["lru"].wait_for_log("Prefix cache hit rate")
    assert "eviction policy" not in servers["lru"].log


def test_a_reset_over_http_empties_the_cache(servers: dict[str, Server]) -> None:
    prompt = [7] * 200
    for server in servers.values():
        ((before, _),) = _complete(server, [prompt])
        ((again, num_cached),) = _complete(server, [prompt])
        assert num_cached > 0
        server.post("/reset_prefix_cache")
        ((after, num_cached),) = _complete(server, [prompt])
        assert num_cached == 0
        assert before == again == after
