# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Shadows on their own thread: the same counts as without it, never waited for, and
whole requests left out when they cannot keep up."""

import random
import time
from collections.abc import Callable

import pytest
from vllm._eviction_C import ShadowHost, native_policies

from tests.adaptive.live_traffic import BLOCK_SIZE

CANDIDATES = [(name, {}) for name in native_policies()]
Answer = tuple[int, int, list[int], float, list[float]]


def conversation(number: int, length: int) -> list[int]:
    return [1000 * (number + 1) + place for place in range(length)]


def feed(host: ShadowHost, seed: int, requests: int, running: int = 5) -> None:
    """Random requests, some at a time, of a few conversations."""
    draw = random.Random(seed)
    under_way: list[tuple[int, list[int]]] = []
    for serial in range(seed * 10_000 + 1, seed * 10_000 + 1 + requests):
        keys = conversation(draw.randrange(40), draw.randrange(1, 9))
        tokens = len(keys) * BLOCK_SIZE + 5
        host.admit(serial, keys, tokens, len(keys) + 1, float(serial))
        under_way.append((serial, keys))
        if draw.random() < 0.3:
            host.grow(serial, len(keys) + 2)
        if len(under_way) > running:
            ended, its = under_way.pop(draw.randrange(len(under_way)))
            host.finish(ended, its, float(serial))
    for serial, keys in under_way:
        host.finish(serial, keys, 0.0)


def answer_to(host: ShadowHost, mark: int) -> Answer:
    host.drain()
    answer = host.poll_answer()
    assert answer is not None and answer[0] == mark
    return answer


def eventually(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.001)
    return False


def test_a_thread_changes_no_count() -> None:
    answers, orders = [], []
    for threaded in (False, True):
        host = ShadowHost(60, BLOCK_SIZE, CANDIDATES, threaded=threaded)
        for seed in range(1, 4):
            feed(host, seed, 300)
            answers.append(answer_to(host, host.mark()))
        orders.append([host.order(i) for i in range(len(CANDIDATES))])
        host.check()
    assert answers[:3] == answers[3:]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders[0]}) > 1, "policies do not differ"


def test_an_answer_is_of_all_that_was_before_the_question() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES)
    feed(host, 1, 300)
    mark = host.mark()
    feed(host, 2, 300)
    asked = answer_to(host, mark)
    alone = ShadowHost(60, BLOCK_SIZE, CANDIDATES, threaded=False)
    feed(alone, 1, 300)
    assert asked == answer_to(alone, alone.mark())


def test_an_answer_is_given_once() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES)
    answer_to(host, host.mark())
    assert host.poll_answer() is None


def test_it_answers_without_being_waited_for() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES)
    feed(host, 1, 20)
    mark = host.mark()
    answers: list[Answer] = []

    def answered() -> bool:
        answer = host.poll_answer()
        if answer is not None:
            answers.append(answer)
        return bool(answers)

    assert eventually(answered)
    assert answers[0][0] == mark


@pytest.mark.parametrize("threaded", [False, True])
def test_what_a_shadow_has_learnt_is_told_with_the_answer(threaded: bool) -> None:
    candidates = [("lru", {}), ("gittins", {})]
    host, untaught, taught = (
        ShadowHost(60, BLOCK_SIZE, candidates, threaded=threaded) for _ in range(3)
    )
    feed(host, 1, 300)
    host.drain()
    assert host.model(1) == untaught.model(1) != []
    answer_to(host, host.mark())
    learnt = host.model(1)
    assert learnt != untaught.model(1)
    assert host.model(0) == []

    assert taught.load_model(1, learnt)
    assert taught.model(1) == learnt
    assert not taught.load_model(1, learnt[:-1])
    assert not taught.load_model(0, learnt)
    assert taught.model(1) == learnt
    for each in (untaught, taught):
        feed(each, 2, 300)
        answer_to(each, each.mark())
        each.check()
    assert untaught.model(1) != taught.model(1)


@pytest.mark.parametrize("threaded", [False, True])
def test_a_full_inbox_leaves_out_whole_requests_and_counts_them(threaded: bool) -> None:
    """Those that it knows of are ended, so that no block is held for ever."""
    host = ShadowHost(
        60, BLOCK_SIZE, CANDIDATES, threaded=threaded, max_pending_words=64
    )
    host.admit(1, conversation(1, 3), 53, 4, 0.0)
    long = conversation(2, 100)  # does not fit, even when the inbox is empty
    host.drain()
    host.admit(2, long, 1605, 101, 0.0)
    host.grow(2, 102)
    host.finish(2, long, 0.0)
    host.finish(1, conversation(1, 3), 0.0)
    _, queries, hits, *_ = answer_to(host, host.mark())
    assert host.dropped == 1
    assert (queries, hits) == (53, [0] * len(CANDIDATES))
    host.check()
    for i in range(len(CANDIDATES)):
        assert host.num_free(i) == 60
    host.admit(3, conversation(1, 3), 53, 4, 0.0)
    assert answer_to(host, host.mark())[2] == [48] * len(CANDIDATES)


def test_a_number_that_comes_again_after_being_left_out_is_a_new_request() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES, threaded=False, max_pending_words=64)
    host.admit(1, conversation(2, 100), 1605, 101, 0.0)
    host.finish(1, conversation(2, 100), 0.0)
    host.admit(1, conversation(1, 3), 53, 4, 0.0)
    assert answer_to(host, host.mark())[1] == 53
    assert host.dropped == 1


def test_ends_and_numbers_that_make_no_sense_break_nothing() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES, threaded=False)
    host.finish(7, conversation(1, 3), 0.0)  # never admitted
    host.grow(8, 100)
    for _ in range(2):
        host.admit(9, conversation(1, 3), 53, 4, -1.0)  # admitted twice
    host.admit(10, conversation(3, 3), 53, 1_000, 0.0)  # more than there is
    host.finish(9, [], 0.0)
    host.finish(9, [], 0.0)
    host.check()
    assert host.failure == ""


def test_a_reset_forgets_what_is_cached_and_keeps_counting() -> None:
    host = ShadowHost(60, BLOCK_SIZE, CANDIDATES, threaded=False)
    keys = conversation(1, 3)
    hits = []
    for serial in (1, 2, 3):
        if serial == 3:
            host.reset()
        host.admit(serial, keys, 53, 4, 0.0)
        host.finish(serial, keys, 0.0)
        hits.append(answer_to(host, host.mark())[2][0])
    assert hits == [0, 48, 48]


def test_it_ends_at_once_with_work_left() -> None:
    host = ShadowHost(2000, BLOCK_SIZE, CANDIDATES)
    feed(host, 1, 3000)
    host.mark()
    del host  # joins the thread; a hang would be seen
