# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the demonstration says follows from the answers, and nothing more is said."""

import random

from compare import MIN_REQUESTS, control, difference, hit_rate, ttft
from replay import Answer
from report import Run, show
from rich.console import Console

PROMPT = 320  # tokens


def answers(count: int, seed: int, hit: float, seconds_a_token: float = 1e-3):
    """Answers to prompts that hit with a probability, all of the prompt or nothing."""
    draw = random.Random(seed)
    found = [PROMPT if draw.random() < hit else 0 for _ in range(count)]
    return [
        Answer((PROMPT + 1 - n) * seconds_a_token * draw.uniform(0.9, 1.1), PROMPT, n)
        for n in found
    ]


def said(one: list[Answer], two: list[Answer]) -> str:
    """What is printed about two runs, in one line."""
    console = Console(width=200, record=True, quiet=False, force_terminal=False)
    with console.capture() as capture:
        show("load", {"lru": Run(one, None), "s3fifo": Run(two, 5.0)}, console)
    return " ".join(capture.get().split())


def test_a_run_is_not_told_apart_from_itself():
    run = answers(400, seed=1, hit=0.5)
    for statistic in (hit_rate, ttft(0.5), ttft(0.95)):
        assert not difference(run, run, statistic).told_apart


def test_more_hits_are_told_apart_and_named():
    few, many = answers(400, 1, hit=0.2), answers(400, 2, hit=0.6)
    assert difference(few, many, hit_rate).told_apart
    assert "load: s3fifo is better in hit rate, TTFT p50" in said(few, many)
    assert "load: lru is better in hit rate, TTFT p50" in said(many, few)


def test_below_a_hundred_requests_nothing_is_told_apart():
    count = MIN_REQUESTS - 1
    gap = difference(answers(count, 1, 0.0), answers(count, 2, 1.0), hit_rate)
    assert gap.excludes_zero and not gap.told_apart


def test_a_slow_server_is_not_taken_for_a_bad_policy():
    run = answers(400, seed=1, hit=0.3)
    slower = [Answer(a.ttft * 1.5, a.prompt_tokens, a.cached_tokens) for a in run]
    assert control(run, slower, ttft(0.5)).excludes_zero
    text = said(run, slower)
    assert "is better" not in text
    assert "TTFT p50, TTFT p95 differ also where both found the same" in text


def test_evictions_that_are_not_counted_are_shown_as_absent():
    run = answers(200, seed=1, hit=0.3)
    assert "evictions │ – │ 5 │" in said(run, run)
