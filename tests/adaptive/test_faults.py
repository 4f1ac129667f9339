# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Whatever goes wrong in the manager, its rule or its shadows: requests are served, the
policy that is live stays, and it is told once."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.real_pool import check_pool
from tests.recorder.driven_scheduler import DrivenScheduler
from vllm.v1.core.eviction import hooks as hooks_module
from vllm.v1.core.eviction.adaptive import AdaptiveHooks
from vllm.v1.core.eviction.rules import Counts, Decision, Rule

pytestmark = pytest.mark.needs_upstream


class AlwaysNext(Rule):
    """Wants another policy every time."""

    def decide(self, now: float, live: int, counts: Counts) -> Decision:
        self.next_decision = now
        choice = (live + 1) % self.num_candidates
        rates = self._rates([float(hit) for hit in counts.hit_tokens], 1.0)
        return Decision(choice, rates, counts.query_tokens, now, now)


class Engine(DrivenScheduler):
    """With time in the test's hands: a step takes as long as it says."""

    def __init__(self, **options: Any):
        plain = {"threaded": False, "candidates": ["lru", "s3fifo", "arc"]}
        config = plain | options.pop("config", {})
        super().__init__(
            policy="adaptive",
            **{"num_blocks": 40, "eviction_config": config} | options,
        )
        self.now = 100.0
        self.seconds = 1.0
        self._step = self.hooks.step
        self.hooks.step = self._tick  # type: ignore[method-assign]

    def _tick(self, now: float) -> None:
        self.now += self.seconds
        self._step(self.now)

    @property
    def hooks(self) -> AdaptiveHooks:
        hooks: Any = self.scheduler.eviction
        assert isinstance(hooks, AdaptiveHooks)
        return hooks

    def serve(self, requests: int = 12, output: int = 3) -> None:
        """Requests that share a beginning, more than the pool can hold."""
        for number in range(requests):
            self.add([number % 5] * 8 + [number] * 9, output=output)
            self.step()
        self.run()
        check_pool(self.scheduler.kv_cache_manager.block_pool)


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """Lines of the log that say that something failed."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(logging.ERROR)
    hooks_module.logger.addHandler(handler)
    yield lines
    hooks_module.logger.removeHandler(handler)


def is_told_once(engine: Engine, errors: list[str], live: str) -> None:
    """The failure shows in the log, in the status and in the metrics."""
    before = dict(engine.hits)
    engine.serve(20)
    assert len(errors) == 1
    assert f"Serving goes on with {live}." in errors[0]
    status = engine.hooks.status()
    assert (status["live"], bool(status["failure"])) == (live, True)
    assert engine.hooks.make_stats()["failures"] == 1
    late = [hit for name, hit in engine.hits.items() if name not in before]
    assert len(late) == 20 and any(late), "the cache hits no more"


def raise_error(*_: Any) -> Any:
    raise RuntimeError("out of ideas")


# ---- The rule. ----


def test_a_rule_that_raises(errors: list[str]) -> None:
    engine = Engine()
    engine.serve()
    engine.hooks._rule.decide = raise_error  # type: ignore[union-attr]
    is_told_once(engine, errors, "lru")
    assert "out of ideas" in errors[0]


@pytest.mark.parametrize("choice", [3, 10**9, None, "arc"])
def test_a_rule_that_chooses_what_is_not_there(choice: Any, errors: list[str]) -> None:
    engine = Engine()
    engine.serve()

    def decide(now: float, live: int, counts: Counts) -> Decision:
        return Decision(choice, (0.0, 0.0, 0.0), 1.0, now, now)

    engine.hooks._rule.decide = decide  # type: ignore[union-attr, method-assign]
    is_told_once(engine, errors, "lru")


# ---- The shadows. ----


class Host:
    """Stands before the real shadows and answers for them."""

    def __init__(self, host: Any):
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def with_host(**answers: Any) -> Engine:
    engine = Engine()
    engine.serve()
    host: Any = Host(engine.hooks.host)
    for name, answer in answers.items():
        setattr(host, name, answer)
    engine.hooks.host = host
    return engine


def test_a_shadow_that_fails(errors: list[str]) -> None:
    is_told_once(with_host(failure="arc: the target left its range"), errors, "lru")
    assert "arc: the target left its range" in errors[0]


def test_what_is_live_is_told_of_ends_without_shadows_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`gittins` learns from them."""
    engine = Engine(config={"candidates": ["gittins", "lru"]})
    engine.serve()
    host: Any = Host(engine.hooks.host)
    host.failure = "lru: lost"
    engine.hooks.host = host
    engine.step()
    assert engine.hooks.stopped
    told: list[int] = []
    queue = type(engine.hooks.queue)
    finish = queue.finish

    def listen(self: Any, serial: int, groups: Any, now: float) -> None:
        told.append(serial)
        finish(self, serial, groups, now)

    monkeypatch.setattr(queue, "finish", listen, raising=False)
    engine.serve(5)
    assert len(told) == 5
    engine.hooks.control({"action": "kill"})
    engine.serve(5)
    assert len(told) == 5  # LRU does not care


def test_a_shadow_that_cannot_be_asked(errors: list[str]) -> None:
    is_told_once(with_host(mark=raise_error), errors, "lru")


@pytest.mark.parametrize("hits", [[1], [1, 2, 3, 4], []])
def test_an_answer_for_another_number_of_candidates(
    hits: list[int], errors: list[str]
) -> None:
    engine = with_host()
    host = engine.hooks.host
    engine.hooks.host.poll_answer = lambda: (  # type: ignore[method-assign]
        engine.hooks._mark,
        host._host.dropped + 10**6,
        hits,
        1e6,
        [float(each) for each in hits],
    )
    is_told_once(engine, errors, "lru")


def test_shadows_that_never_answer_cost_the_choice_and_nothing_else(
    errors: list[str],
) -> None:
    engine = with_host(poll_answer=lambda: None)
    decisions = len(engine.hooks.decisions.entries)
    engine.serve(40)
    assert len(engine.hooks.decisions.entries) == decisions
    assert engine.hooks.status()["live"] == "lru"
    assert not errors


def test_answers_to_older_questions_are_not_taken_for_the_newest(
    errors: list[str],
) -> None:
    engine = with_host(poll_answer=lambda: (-1, 10**9, [0, 10**9, 0], 1.0, [0.0]))
    engine.serve(40)
    assert engine.hooks.status()["live"] == "lru"
    assert not errors


# ---- A change of policy. ----


@pytest.mark.parametrize(
    "method", ["copy_residents", "ask_for_plan", "begin_hand_over"]
)
def test_a_change_that_fails_on_its_way(
    method: str, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    engine.serve()
    engine.hooks._rule = AlwaysNext(3, engine.now)
    monkeypatch.setattr(type(engine.hooks.queue), method, raise_error)
    is_told_once(engine, errors, "lru")


# ---- Time and traffic. ----


def decides_again(engine: Engine) -> bool:
    decisions = len(engine.hooks.decisions.entries)
    engine.serve(40)
    return len(engine.hooks.decisions.entries) > decisions


@pytest.mark.parametrize("window", [None, 30.0])
def test_a_clock_that_goes_back(window: float | None, errors: list[str]) -> None:
    engine = Engine(eviction_window=window)
    engine.serve(40)
    engine.now -= 10_000.0
    assert decides_again(engine)
    engine.now += 10_000.0  # and a jump ahead
    assert decides_again(engine)
    assert not errors


def test_a_clock_that_stands(errors: list[str]) -> None:
    engine = Engine()
    engine.seconds = 0.0
    engine.serve(40)
    assert not engine.hooks.decisions.entries and not errors
    engine.seconds = 1.0
    assert decides_again(engine)


@pytest.mark.parametrize("window", [None, 10.0])
def test_windows_without_a_request_change_nothing(
    window: float | None, errors: list[str]
) -> None:
    engine = Engine(eviction_window=window)
    engine.serve(40)
    live = engine.hooks.status()["live"]
    for _ in range(200):  # an engine that has nothing to do still steps
        engine.step()
    assert engine.hooks.status()["live"] == live
    assert not errors
    assert decides_again(engine)


def test_a_window_of_one_request(errors: list[str]) -> None:
    engine = Engine(eviction_window=5.0)
    for number in range(30):
        engine.add([number % 3] * 9, output=1)
        engine.run()
        engine.now += 10.0
    assert len(engine.hooks.decisions.entries) > 10
    assert not errors


@pytest.mark.parametrize("num_blocks", [3, 4])  # one of them is the null block
def test_a_pool_of_two_blocks(num_blocks: int, errors: list[str]) -> None:
    engine = Engine(num_blocks=num_blocks)
    for number in range(60):
        engine.add([number % 3] * 5, output=1)
        engine.run()
        if number == 20:
            engine.hooks._rule = AlwaysNext(3, engine.now)
        check_pool(engine.scheduler.kv_cache_manager.block_pool)
    assert sum(engine.hooks._switches.values()) > 10
    assert not errors


def test_a_change_at_every_step(errors: list[str]) -> None:
    engine = Engine(num_blocks=24)
    engine.serve(3)
    engine.hooks._rule = AlwaysNext(3, engine.now)
    engine.serve(200, output=16)
    assert sum(engine.hooks._switches.values()) > 100
    assert engine.preemptions > 0, "the pool is too large for this test"
    assert not errors
