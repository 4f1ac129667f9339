# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The operator's hand on a running engine: `control_eviction` over vLLM's scheduler,
and the route `/eviction` over that."""

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.core.real_pool import check_pool
from tests.recorder.driven_scheduler import DrivenScheduler
from vllm.entrypoints.serve.dev.eviction.api_router import attach_router
from vllm.v1.core.eviction import attach
from vllm.v1.core.eviction.adaptive import AdaptiveHooks
from vllm.v1.core.eviction.attach import control_eviction
from vllm.v1.core.eviction.rules import Decision

STATUS = {"action": "status"}
KILL = {"action": "kill"}
RELEASE = {"action": "release"}
S3FIFO = {"action": "pin", "policy": "s3fifo"}


class Engine(DrivenScheduler):
    """With an operator."""

    @property
    def hooks(self) -> AdaptiveHooks:
        hooks: Any = self.scheduler.eviction
        assert isinstance(hooks, AdaptiveHooks)
        return hooks

    def control(self, command: dict[str, Any]) -> dict[str, Any]:
        answer = control_eviction(self.scheduler, command)
        assert json.loads(json.dumps(answer)) == answer
        return answer

    def serve(self, requests: int, output: int = 3) -> None:
        for number in range(requests):
            self.add([number % 7] * 8 + [number] * 8, output=output)
            self.step()
        self.run()
        check_pool(self.scheduler.kv_cache_manager.block_pool)

    def decide(self, choice: str) -> None:
        """As if the rule had chosen."""
        labels = [candidate.label for candidate in self.hooks.candidates]
        decision = Decision(
            choice=labels.index(choice),
            hit_rates=(0.1, 0.2, 0.3),
            query_tokens=1000.0,
            start=0.0,
            end=10.0,
        )
        self.hooks._follow(decision, 10.0)


def adaptive(eviction_config: dict[str, Any] | None = None, **options: Any) -> Engine:
    """With LRU live and three candidates."""
    config = {"candidates": ["lru", "s3fifo", "arc"]} | (eviction_config or {})
    return Engine(
        policy="adaptive",
        eviction_config=config,
        **{"num_blocks": 40} | options,
    )


class _Journal(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def about(self, *words: str) -> list[str]:
        return [line for line in self.lines if all(word in line for word in words)]


@pytest.fixture
def journal() -> Iterator[_Journal]:
    handler = _Journal()
    loggers = [
        logging.getLogger(f"vllm.v1.core.eviction.{name}")
        for name in ("adaptive", "decision_log", "hooks", "attach")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


# ---- Status. ----


def test_status_of_adaptive_names_what_an_operator_wants_to_know() -> None:
    engine = Engine(policy="adaptive", num_blocks=40)
    engine.serve(20)
    status = engine.control(STATUS)
    assert status["policy"] == "adaptive"
    assert status["live"] == "gittins"
    assert list(status["candidates"]) == ["gittins", "lru", "s3fifo", "arc"]
    assert status["rule"] == "discounted" and status["window"] is None
    assert status["decisions"] == [] and 0 < status["next_decision_in"] <= 10
    assert status["pinned"] is status["switching_to"] is status["failure"] is None
    assert status["killed"] is status["dry_run"] is False
    assert status["evictions"] > 0


@pytest.mark.parametrize("policy", ["lru", "s3fifo"])
def test_status_of_a_single_policy(policy: str) -> None:
    engine = Engine(policy=policy, num_blocks=40)
    engine.serve(20)
    status = engine.control(STATUS)
    assert (status["policy"], status["live"]) == (policy, policy)
    assert status["failure"] is None
    assert ("evictions" in status) == (policy != "lru")  # vLLM's own does not count


def test_status_without_prefix_caching_says_so() -> None:
    engine = Engine(policy="s3fifo", enable_prefix_caching=False)
    status = engine.control(STATUS)
    assert (status["policy"], status["failure"]) == (
        "s3fifo",
        "prefix caching is off",
    )


def test_status_of_a_policy_that_could_not_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LRU is live, and the configured name must not hide it."""
    from vllm.v1.core.eviction import adaptive as module

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("no room for shadows")

    monkeypatch.setattr(module, "ShadowHost", refuse)
    engine = Engine(policy="adaptive", log_stats=True)
    status = engine.control(STATUS)
    assert (status["policy"], status["live"]) == ("adaptive", "lru")
    assert "no room for shadows" in status["failure"]
    assert engine.control(S3FIFO)["error"].startswith("Cannot pin")
    stats: Any = engine.scheduler.make_stats()
    assert stats.eviction_stats == {"policy": "lru", "failures": 1}
    assert engine.scheduler.make_stats().eviction_stats["failures"] == 0
    engine.serve(20)


# ---- Pin and release. ----


def test_a_pin_on_an_idle_engine_takes_effect_at_once(journal: _Journal) -> None:
    engine = adaptive()
    engine.serve(20)
    status = engine.control(S3FIFO)
    assert (status["live"], status["pinned"]) == ("s3fifo", "s3fifo")
    assert status["switching_to"] is None
    assert status["candidates"]["s3fifo"]["switches"] == 1
    assert len(journal.about("lru -> s3fifo", "pinned")) == 1
    engine.serve(20)


def test_a_pin_on_a_busy_engine_takes_effect_in_some_steps() -> None:
    engine = adaptive()
    engine.add([1] * 8, output=100)
    engine.step()
    status = engine.control(S3FIFO)
    assert (status["live"], status["switching_to"]) == ("lru", "s3fifo")
    for _ in range(20):
        engine.hooks.host.drain()
        engine.step()
    assert engine.control(STATUS)["live"] == "s3fifo"
    engine.run()


def test_a_pin_holds_against_the_rule_until_it_is_released(journal: _Journal) -> None:
    engine = adaptive()
    engine.serve(5)
    engine.control(S3FIFO)
    engine.decide("arc")
    engine.serve(5)
    status = engine.control(STATUS)
    assert (status["live"], status["pinned"]) == ("s3fifo", "s3fifo")
    (decision,) = status["decisions"]
    assert (decision["choice"], decision["switched"]) == ("arc", False)
    assert engine.control(RELEASE)["pinned"] is None
    assert len(journal.about("released")) == 1
    engine.decide("arc")
    engine.add([1] * 8, output=30)
    for _ in range(20):
        engine.hooks.host.drain()
        engine.step()
    assert engine.control(STATUS)["live"] == "arc"


def test_a_pin_to_what_is_live_stops_a_switch_that_is_under_way() -> None:
    engine = adaptive()
    engine.add([1] * 8, output=100)
    engine.step()
    engine.decide("arc")
    assert engine.control(STATUS)["switching_to"] == "arc"
    status = engine.control({"action": "pin", "policy": "lru"})
    assert (status["live"], status["switching_to"]) == ("lru", None)
    for _ in range(20):
        engine.hooks.host.drain()
        engine.step()
    assert engine.control(STATUS)["live"] == "lru"
    engine.run()


def test_a_second_pin_replaces_a_first_that_is_under_way() -> None:
    engine = adaptive()
    engine.add([1] * 8, output=100)
    engine.step()
    for policy in ("s3fifo", "arc", "s3fifo", "arc"):
        engine.control({"action": "pin", "policy": policy})
        engine.step()
        engine.step()  # the plan of this one may be on its way
    for _ in range(20):
        engine.hooks.host.drain()
        engine.step()
    status = engine.control(STATUS)
    assert (status["live"], status["pinned"]) == ("arc", "arc")
    engine.run()
    check_pool(engine.scheduler.kv_cache_manager.block_pool)


def test_a_pin_in_a_dry_run_is_obeyed() -> None:
    """The rule never switches then; the operator may."""
    engine = adaptive(eviction_config={"dry_run": True})
    engine.serve(5)
    engine.decide("arc")
    assert engine.control(STATUS)["decisions"][0]["switched"] is False
    assert engine.control(STATUS)["switching_to"] is None
    assert engine.control(S3FIFO)["live"] == "s3fifo"


# ---- The rule looks again while a switch is under way. ----


def test_a_choice_that_is_confirmed_does_not_start_anew(journal: _Journal) -> None:
    """Else a switch would never end where looks are more frequent than it is long."""
    engine = adaptive()
    engine.add([1] * 8, output=100)
    engine.step()
    engine.decide("arc")
    under_way = engine.hooks._hand_over
    engine.decide("arc")
    assert engine.hooks._hand_over is under_way
    assert len(journal.about("lru -> arc")) == 1
    switched = [entry["switched"] for entry in engine.control(STATUS)["decisions"]]
    assert switched == [True, False]
    engine.run()


def test_a_choice_that_is_taken_back_ends_the_switch(journal: _Journal) -> None:
    engine = adaptive()
    engine.add([1] * 8, output=100)
    engine.step()
    engine.decide("arc")
    engine.decide("lru")
    assert engine.control(STATUS)["switching_to"] is None
    assert len(journal.about("lru stays after all")) == 1
    for _ in range(10):
        engine.hooks.host.drain()
        engine.step()
    assert engine.control(STATUS)["live"] == "lru"
    engine.run()


# ---- Kill. ----


@pytest.mark.parametrize("policy", ["adaptive", "s3fifo"])
def test_kill_puts_lru_in_charge_for_good(policy: str, journal: _Journal) -> None:
    engine = Engine(policy=policy, num_blocks=40)
    engine.serve(20)
    status = engine.control(KILL)
    assert (status["policy"], status["live"], status["killed"]) == (policy, "lru", True)
    assert status["failure"] is None  # nobody's fault
    assert len(journal.about("killed")) == 1
    engine.control(KILL)
    assert len(journal.about("killed")) == 1
    evictions = status["evictions"]
    engine.serve(20)
    status = engine.control(STATUS)
    assert status["live"] == "lru" and status["evictions"] > evictions
    assert "error" in engine.control(S3FIFO)


def test_kill_ends_a_switch_and_a_pin() -> None:
    engine = adaptive()
    engine.add([1] * 8, output=50)
    engine.step()
    engine.control(S3FIFO)
    status = engine.control(KILL)
    assert status["switching_to"] is status["pinned"] is None
    assert status["next_decision_in"] is None
    engine.run()
    assert engine.control(STATUS)["live"] == "lru"


def test_a_pin_that_fails_stops_the_manager_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = adaptive()
    engine.serve(5)

    def fail(*_: Any) -> None:
        raise RuntimeError("no such order")

    monkeypatch.setattr(type(engine.hooks.queue), "continue_hand_over", fail)
    status = engine.control(S3FIFO)
    assert (status["live"], status["switching_to"]) == ("lru", None)
    assert "no such order" in status["failure"] and status["pinned"] is None
    engine.serve(5)


def test_kill_under_lru_changes_nothing() -> None:
    engine = Engine()
    engine.serve(5)
    assert engine.control(KILL)["live"] == "lru"
    engine.serve(5)


def test_failed_shadows_are_told_and_leave_what_is_live(journal: _Journal) -> None:
    engine = adaptive(log_stats=True)
    engine.serve(5)
    engine.control(S3FIFO)

    def fail(now: float) -> None:
        raise RuntimeError("out of\nluck")

    engine.hooks._manage = fail  # type: ignore[method-assign]
    engine.serve(5)
    status = engine.control(STATUS)
    assert status["live"] == "s3fifo"
    assert "out of" in status["failure"] and "\n" not in status["failure"]
    assert len(journal.about("Serving goes on with s3fifo")) == 1
    assert "has stopped" in engine.control(S3FIFO)["error"]
    assert engine.control(KILL)["live"] == "lru"
    engine.serve(5)


# ---- What is not understood. ----


@pytest.mark.parametrize("policy", ["lru", "s3fifo", "adaptive"])
@pytest.mark.parametrize("action", ["fly", None, 5, ["pin"], "x" * 10_000, "a\nb"])
def test_an_unknown_action_is_one_clear_line(policy: str, action: Any) -> None:
    error = Engine(policy=policy).control({"action": action})["error"]
    assert "status, pin, release, kill" in error
    assert "\n" not in error and len(error) < 150


@pytest.mark.parametrize("policy", ["lru", "s3fifo"])
@pytest.mark.parametrize("command", [S3FIFO, RELEASE])
def test_only_adaptive_can_be_pinned(policy: str, command: dict[str, Any]) -> None:
    error = Engine(policy=policy).control(command)["error"]
    assert repr(policy) in error and "--eviction-policy adaptive" in error


@pytest.mark.parametrize("policy", [None, "", "LRU", "sieve", 3, ["lru"]])
def test_a_pin_to_what_is_no_candidate_names_the_candidates(policy: Any) -> None:
    engine = adaptive()
    error = engine.control({"action": "pin", "policy": policy})["error"]
    assert error == f"Cannot pin {policy!r}: choose from lru, s3fifo, arc."
    assert engine.control(STATUS)["pinned"] is None


def test_a_fault_of_ours_never_reaches_the_engine_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = adaptive()
    monkeypatch.setattr(AdaptiveHooks, "status", lambda self: 1 / 0)
    monkeypatch.setattr(attach.logger, "exception", lambda text: None)
    assert "ZeroDivisionError" in engine.control(STATUS)["error"]


# ---- The route. ----


def client_of(*engines: Engine) -> TestClient:
    async def call_utility_all_async(
        method: str, command: dict[str, Any]
    ) -> list[dict[str, Any]]:
        assert method == "eviction_control"
        command = msgspec.msgpack.decode(msgspec.msgpack.encode(command))
        return [engine.control(command) for engine in engines]

    app = FastAPI()
    attach_router(app)
    core = SimpleNamespace(call_utility_all_async=call_utility_all_async)
    app.state.engine_client = SimpleNamespace(engine_core=core)
    return TestClient(app)


def test_the_route_has_an_entry_for_each_rank() -> None:
    engines = adaptive(), adaptive()
    client = client_of(*engines)
    answer = client.get("/eviction").json()
    assert [entry["live"] for entry in answer["engines"]] == ["lru", "lru"]
    answer = client.post("/eviction", json=S3FIFO).json()
    assert [entry["pinned"] for entry in answer["engines"]] == ["s3fifo", "s3fifo"]
    assert [engine.control(STATUS)["live"] for engine in engines] == ["s3fifo"] * 2
    answer = client.post("/eviction", json=KILL).json()
    assert [entry["killed"] for entry in answer["engines"]] == [True, True]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"pin",
        b"[1]",
        b"null",
        b'"kill"',
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    answer = client_of(adaptive()).post("/eviction", content=body)
    assert answer.status_code == 400
    assert "must be a JSON object" in answer.json()["detail"]


@pytest.mark.parametrize("body", [{}, {"action": "fly"}, {"action": "pin"}])
def test_a_command_that_is_not_understood_is_refused(body: dict[str, Any]) -> None:
    answer = client_of(adaptive()).post("/eviction", json=body)
    assert answer.status_code == 400
    assert "choose from" in answer.json()["detail"]


def test_a_refusal_says_which_rank_it_is_from() -> None:
    answer = client_of(adaptive(), Engine()).post("/eviction", json=S3FIFO)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("Engine 1: Cannot pin")


@pytest.mark.parametrize(
    "body",
    [
        b'{"action": 18446744073709551616}',
        b'{"action": "pin", "policy": "\\ud800"}',
        b'{"action": ' + b"[" * 800 + b"]" * 800 + b"}",
    ],
)
def test_a_body_that_cannot_be_passed_on_is_refused(body: bytes) -> None:
    """JSON says more than what the engine cores are told things in."""
    client = client_of(adaptive())
    assert client.post("/eviction", content=body).status_code == 400
    assert client.get("/eviction").status_code == 200
