# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Scaling the traffic down changes lengths, and nothing about what recurs."""

import itertools

from generated import generate
from traffic import BLOCK, SCALE, STRIDE, Load, conversation_of, take

EVERYTHING = Load("all", every=1, minutes=60)
VOCABULARY = 49152


def request(minute: float, blocks: range, rest: int = 0) -> dict:
    """A request of full 512-token blocks and `rest` tokens after the last."""
    ids = [0, *blocks]
    length = len(ids) * 512 + rest
    return {
        "timestamp": minute * 60_000,
        "input_length": length,
        "hash_ids": [*ids, 10**9] if rest else ids,
    }


def shared(one: list[int], two: list[int]) -> int:
    """Tokens that two prompts have in common from the beginning."""
    pairs = zip(one, two, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_lengths_are_divided_by_the_scale():
    (prompt,) = take([request(0, range(1, 100), rest=300)], EVERYTHING)
    assert len(prompt.token_ids("all", 0, VOCABULARY)) == (100 * 512 + 300) // SCALE


def test_a_shorter_request_than_a_block_is_kept():
    (prompt,) = take([{"timestamp": 0, "input_length": 7, "hash_ids": [0]}], EVERYTHING)
    assert len(prompt.token_ids("all", 0, VOCABULARY)) == 1


def test_the_next_turn_shares_the_tokens_that_it_shared_in_the_trace():
    turn, next_turn, stranger = take(
        [
            request(0, range(1, 80), rest=200),
            request(1, range(1, 160), rest=200),
            request(2, range(500, 580), rest=200),
        ],
        EVERYTHING,
    )
    tokens = turn.token_ids("all", 0, VOCABULARY)
    longer = next_turn.token_ids("all", 1, VOCABULARY)
    other = stranger.token_ids("all", 2, VOCABULARY)
    assert shared(tokens, longer) // BLOCK == 80 // STRIDE
    assert shared(tokens, other) // BLOCK == 0


def test_what_stands_after_the_last_block_never_comes_again():
    first, again = take([request(0, range(1, 9), rest=99)] * 2, EVERYTHING)
    tokens = first.token_ids("all", 0, VOCABULARY)
    assert shared(tokens, again.token_ids("all", 1, VOCABULARY)) == BLOCK


def test_two_loads_share_no_block():
    (prompt,) = take([request(0, range(1, 80))], EVERYTHING)
    busy = prompt.token_ids("busy", 0, VOCABULARY)
    assert shared(busy, prompt.token_ids("quiet", 0, VOCABULARY)) < BLOCK


def test_conversations_are_kept_whole_and_others_left_out():
    rows = list(generate())
    kept = take(rows, Load("some", every=7, minutes=60))
    order: dict[int, int] = {}
    for row in rows:
        order.setdefault(conversation_of(row), len(order))
    of_kept_ones = [row for row in rows if order[conversation_of(row)] % 7 == 0]
    assert len(kept) == len(of_kept_ones) > 100


def test_nothing_is_taken_from_after_the_load():
    rows = [
        request(minute, range(minute * 100 + 1, minute * 100 + 9))
        for minute in range(5)
    ]
    assert len(take(rows, Load("early", every=1, minutes=3))) == 3


def test_the_generated_mix_is_in_order_and_in_the_trace_format():
    rows = list(generate())
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    assert all(-(-row["input_length"] // 512) == len(row["hash_ids"]) for row in rows)
