# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm serve --eviction-policy adaptive`: traffic changes, the policy follows, and an
operator sees it in the log, in /metrics and in /eviction.

Servers are dear: the tests are the stages of one life of each, in this order."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.server.adaptive_traffic import Send, agentic, drive, flood, sender
from tests.server.server_process import Server

pytestmark = pytest.mark.timeout(900)

FLAGS = [
    "--dtype=float32",
    "--block-size=32",
    "--max-model-len=1024",
    "--max-num-batched-tokens=1024",
    "--max-num-seqs=8",
    "--num-gpu-blocks-override=200",
    "--enforce-eager",
    "--served-model-name=tiny",
    "--eviction-policy=adaptive",
    '--eviction-config={"candidates":["lru","s3fifo"],"half_life":3,"interval":1}',
]
SWITCH = re.compile(
    r"Prefix cache eviction policy: lru -> s3fifo "
    r"\(\d+ s, \d+ tokens; shadow hit rates: lru [\d.]+%, s3fifo [\d.]+%\)\."
)
POLICIES = ["lru", "s3fifo"]


class Adaptive(Server):
    """With what the tests ask it."""

    def eviction(self) -> dict[str, Any]:
        """What /eviction says of the only engine."""
        response = requests.get(f"{self.url}/eviction", timeout=30)
        response.raise_for_status()
        (engine,) = response.json()["engines"]
        return engine

    def control(self, **command: Any) -> requests.Response:
        return requests.post(f"{self.url}/eviction", json=command, timeout=30)

    def by_policy(self, name: str) -> dict[str, float]:
        """Values of a metric that has a label for the policy."""
        return {
            labels["policy"]: value for labels, value in self.samples().get(name, [])
        }

    def value(self, name: str) -> float:
        ((_, value),) = self.samples()[name]
        return value

    @property
    def send(self) -> Send:
        return sender(self.url, "tiny")


@pytest.fixture(scope="module")
def servers(
    model: str, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Adaptive, Adaptive]]:
    """With and without statistics; they start together."""
    logs: Path = tmp_path_factory.mktemp("logs")
    started = []
    try:
        for name, more in (("loud", []), ("quiet", ["--disable-log-stats"])):
            log = logs / f"{name}.log"
            started.append(Adaptive(model, FLAGS + more, environment, log))
        for server in started:
            server.wait_until_ready(600)
        yield started[0], started[1]
    finally:
        for server in started:
            server.stop()


@pytest.fixture(scope="module")
def loud(servers: tuple[Adaptive, Adaptive]) -> Adaptive:
    return servers[0]


@pytest.fixture(scope="module")
def quiet(servers: tuple[Adaptive, Adaptive]) -> Adaptive:
    return servers[1]


def tokens_measured(server: Adaptive) -> int:
    return sum(entry["query_tokens"] for entry in server.eviction()["decisions"])


def let_it_switch(server: Adaptive) -> tuple[dict[str, Any], dict[str, Any]]:
    """Agents until the shadows have seen some thousand tokens, then the flood until
    the policy has changed; what /eviction said after each."""
    drive(agentic, server.send, lambda: tokens_measured(server) > 40_000)
    before = server.eviction()
    drive(flood, server.send, lambda: server.eviction()["live"] != "lru")
    return before, server.eviction()


@pytest.fixture(scope="module")
def switched(loud: Adaptive) -> tuple[dict[str, Any], dict[str, Any]]:
    metrics = loud.by_policy("vllm:prefix_cache_eviction_policy")
    assert metrics == {"lru": 1, "s3fifo": 0}  # known before the first request
    return let_it_switch(loud)


# ---- A switch is seen. ----


def test_the_route_tells_of_the_switch(
    switched: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    before, after = switched
    assert before["live"] == "lru"
    assert not any(entry["switched"] for entry in before["decisions"])
    assert after["live"] == "s3fifo"
    decisions = [entry for entry in after["decisions"] if entry["switched"]]
    assert [(entry["live"], entry["choice"]) for entry in decisions] == [
        ("lru", "s3fifo")
    ]
    rates = decisions[0]["hit_rates"]
    assert rates["s3fifo"] > rates["lru"]
    assert after["candidates"]["s3fifo"]["switches"] == 1
    assert after["candidates"]["lru"]["switches"] == 0
    assert after["failure"] is None and after["dropped_admissions"] == 0


def test_the_log_has_one_line_for_the_switch(
    loud: Adaptive, switched: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    lines = [line for line in loud.log.splitlines() if SWITCH.search(line)]
    assert len(lines) == 1 and " INFO " in lines[0]
    assert "shadow hit rates" not in loud.log.replace(lines[0], "")


def test_the_metrics_tell_of_the_switch(
    loud: Adaptive, switched: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    loud.send([1] * 40, 1)  # statistics travel with a step
    assert loud.by_policy("vllm:prefix_cache_eviction_policy") == {
        "lru": 0,
        "s3fifo": 1,
    }
    assert loud.by_policy("vllm:prefix_cache_policy_switches_total") == {
        "lru": 0,
        "s3fifo": 1,
    }
    queries = loud.value("vllm:prefix_cache_shadow_queries_total")
    hits = loud.by_policy("vllm:prefix_cache_shadow_hits_total")
    assert list(hits) == POLICIES
    assert all(0 < count < queries for count in hits.values())
    # The shadows are asked what the live cache is asked, some seconds later.
    live_queries = loud.value("vllm:prefix_cache_queries_total")
    assert 0.5 * live_queries < queries <= live_queries
    assert loud.value("vllm:prefix_cache_eviction_seconds_total") > 0
    assert loud.value("vllm:prefix_cache_shadow_seconds_total") > 0
    assert loud.value("vllm:prefix_cache_evictions_total") > 0
    assert loud.value("vllm:prefix_cache_shadow_dropped_total") == 0
    assert loud.value("vllm:prefix_cache_eviction_policy_failures_total") == 0


def test_without_statistics_it_switches_all_the_same(quiet: Adaptive) -> None:
    before, after = let_it_switch(quiet)
    assert (before["live"], after["live"]) == ("lru", "s3fifo")
    assert len(SWITCH.findall(quiet.log)) == 1
    assert not [name for name in quiet.samples() if "prefix_cache" in name]


# ---- The operator steps in. ----


def test_a_pin_does_not_disturb_requests_in_flight(loud: Adaptive) -> None:
    """Sixteen requests are answered while the policy is changed to and fro, and
    answered alike when it rests."""
    send = loud.send
    prompts = [[number] * 100 + [200 - number] * 60 for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        under_way = [pool.submit(send, prompt, 120) for prompt in prompts]
        for number in range(20):
            answer = loud.control(action="pin", policy=POLICIES[number % 2])
            assert answer.status_code == 200
            loud.send([number] * 33, 2)
        answers = [request.result() for request in under_way]
        assert all(len(tokens) == 120 for tokens in answers)
    assert loud.eviction()["failure"] is None
    loud.control(action="pin", policy="lru")
    assert [send(prompt, 120) for prompt in prompts[:4]] == answers[:4]


def test_a_pin_shows_everywhere_and_is_released(loud: Adaptive) -> None:
    loud.control(action="pin", policy="lru")
    status = loud.control(action="pin", policy="s3fifo").json()["engines"][0]
    assert (status["live"], status["pinned"]) == ("s3fifo", "s3fifo")
    loud.wait_for_log("lru -> s3fifo (pinned by the operator)")
    loud.send([1] * 40, 1)
    assert loud.by_policy("vllm:prefix_cache_eviction_policy")["s3fifo"] == 1
    status = loud.control(action="release").json()["engines"][0]
    assert status["pinned"] is None


@pytest.mark.parametrize(
    "command, word",
    [
        ({"action": "pin", "policy": "arc"}, "choose from lru, s3fifo"),
        ({"action": "fly"}, "choose from status, pin, release, kill"),
        ({}, "choose from status, pin, release, kill"),
    ],
)
def test_a_bad_command_is_one_clear_line(
    loud: Adaptive, command: dict[str, str], word: str
) -> None:
    answer = loud.control(**command)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert word in message and "\n" not in message


def test_a_body_that_is_no_json_is_one_clear_line(loud: Adaptive) -> None:
    answer = requests.post(f"{loud.url}/eviction", data=b"[" * 100_000, timeout=30)
    assert answer.status_code == 400
    assert "must be a JSON object" in answer.json()["error"]["message"]


def test_a_reset_of_the_cache_keeps_the_policy(loud: Adaptive) -> None:
    loud.control(action="pin", policy="s3fifo")
    loud.post("/reset_prefix_cache")
    status = loud.eviction()
    assert (status["live"], status["failure"]) == ("s3fifo", None)
    drive(flood, loud.send, iter([False] * 10 + [True] * 10).__next__, clients=1)
    assert loud.eviction()["failure"] is None


def test_kill_puts_lru_in_charge(loud: Adaptive) -> None:  # the last one on this server
    loud.control(action="pin", policy="s3fifo")
    status = loud.control(action="kill").json()["engines"][0]
    assert (status["live"], status["killed"]) == ("lru", True)
    loud.wait_for_log("s3fifo -> lru (killed by the operator)")
    loud.send([1] * 40, 1)
    assert loud.by_policy("vllm:prefix_cache_eviction_policy") == {
        "lru": 1,
        "s3fifo": 0,
    }
    assert loud.control(action="pin", policy="s3fifo").status_code == 400
    drive(agentic, loud.send, iter([False] * 10 + [True] * 10).__next__, clients=1)
    assert loud.eviction()["live"] == "lru"
