# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Tokens are equal where, and only where, a trace's blocks are."""

import json

import numpy as np
import pytest
from prefix_prompts import Batch, as_asked, asks_of_trace, load_workload

from tests.harness.traffic import trace_of
from vllm.benchmarks.eviction.workloads import EVEN, P1, constant, generate

VOCABULARY = 5000


def blocks_of(tokens, size):
    """Full blocks, each with all before it, as an engine hashes them."""
    full = len(tokens) // size
    return [tokens[: (i + 1) * size].tobytes() for i in range(full)]


def test_equal_blocks_get_equal_tokens_and_no_others_do():
    trace = generate(P1.workload, constant(EVEN, 300.0))
    asks = asks_of_trace(trace, VOCABULARY, speed_up=1.0)
    key_of, prefix_of = {}, {}
    for i, ask in enumerate(asks):
        first = int(trace.offsets[i])
        keys = trace.keys[first:].tolist()
        assert len(ask.tokens) == trace.prompt_tokens[i]
        for key, prefix in zip(keys, blocks_of(ask.tokens, 16), strict=False):
            assert prefix_of.setdefault(key, prefix) == prefix
            assert key_of.setdefault(prefix, key) == key
    assert len(key_of) > 10_000


def test_a_tail_is_no_one_elses():
    # Two prompts of ten tokens in blocks of four, with two equal blocks.
    trace = trace_of((0.0, [7, 8, 9], 2), (1.0, [7, 8, 5], 2))
    one, other = asks_of_trace(trace, VOCABULARY, speed_up=1.0)
    assert one.tokens[:8].tolist() == other.tokens[:8].tolist()
    assert one.tokens[8:].tolist() != other.tokens[8:].tolist()


def test_tokens_are_of_the_model_and_none_is_special():
    trace = generate(P1.workload, constant(EVEN, 60.0))
    for vocabulary in (288, 49_152):
        tokens = np.concatenate(
            [ask.tokens for ask in asks_of_trace(trace, vocabulary, 1.0)]
        )
        assert tokens.min() >= min(1000, vocabulary // 2)
        assert tokens.max() < vocabulary


def test_a_faster_replay_has_the_same_requests_sooner():
    trace = generate(P1.workload, constant(EVEN, 60.0))
    slow, fast = (asks_of_trace(trace, VOCABULARY, speed) for speed in (1.0, 8.0))
    for one, other in zip(slow, fast, strict=True):
        assert one.due == other.due * 8
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.output == other.output
    capped = asks_of_trace(trace, VOCABULARY, 1.0, output_len=20)
    assert [ask.output for ask in capped] == [min(20, ask.output) for ask in slow]


def test_the_trace_that_the_engine_sees_has_answers_of_its_own():
    # The second prompt of the session repeats the answer, block 3, to the first.
    trace = trace_of((0.0, [1, 2, 3], 4), (9.0, [1, 2, 3, 4], 1))
    assert trace.infinite_hit_rate() == 3 / 5
    asked = as_asked(trace)
    assert asked.infinite_hit_rate() == 2 / 5
    assert np.diff(asked.offsets).tolist() == [2, 3]
    assert as_asked(trace, output_len=1).output_tokens.tolist() == [1, 1]


def test_a_workload_is_a_preset_or_a_file(tmp_path):
    trace, title = load_workload("P0", ["shares=0,0,100"], 120.0)
    assert trace.arrivals.max() < 120 and "P0" in title
    path = tmp_path / "trace.jsonl"
    line = {
        "timestamp": 0,
        "input_length": 40,
        "output_length": 3,
        "hash_ids": [1, 2, 3],
    }
    path.write_text(json.dumps(line) + "\n")
    trace, title = load_workload(str(path), [], None)
    assert trace.prompt_tokens.tolist() == [40]
    assert title == "trace.jsonl (mooncake)"


@pytest.mark.parametrize(
    "traffic", ["seconds=600", "concurrency=4 sessions=50 shares=0,50,50"]
)
def test_what_comes_later_is_left_out_of_any_traffic(traffic):
    whole, _ = load_workload("P1", traffic.split(), None)
    part, _ = load_workload("P1", traffic.split(), 60.0)
    count = int((whole.arrivals <= 60.0).sum())
    assert 0 < count < len(whole)
    assert part.arrivals.tolist() == whole.arrivals[:count].tolist()


def batch(**changes):
    fields = {
        "num_prompts": 6,
        "repeat_count": 3,
        "lengths": (40, 60),
        "prefix_len": 30,
        "output_len": 10,
        "sort": False,
        "seed": 0,
    }
    return Batch(**{**fields, **changes})


def test_drawn_prompts_have_a_common_prefix_and_are_repeated():
    asks = batch().drawn(VOCABULARY)
    texts = [tuple(ask.tokens.tolist()) for ask in asks]
    assert len(texts) == 18 and len(set(texts)) == 6
    assert len({text[:30] for text in texts}) == 1
    assert len({text[:34] for text in texts}) == 6
    assert all(40 <= len(text) <= 60 for text in texts)
    assert {ask.due for ask in asks} == {0.0}
    lengths = [len(ask.tokens) for ask in batch(sort=True).drawn(VOCABULARY)]
    assert lengths == sorted(lengths) != [len(text) for text in texts]


class Letters:
    """A tokenizer: a token a letter."""

    def __len__(self):
        return VOCABULARY

    def encode(self, text):
        return [ord(letter) for letter in text]


def test_prompts_of_a_file_are_those_of_the_lengths_asked_for(tmp_path):
    path = tmp_path / "talks.json"
    texts = ["a" * n for n in (5, 20, 25, 80)]
    path.write_text(json.dumps([{"conversations": [{"value": t}]} for t in texts]))
    asks = batch(num_prompts=2, repeat_count=2).read(path, Letters())
    assert sorted(len(ask.tokens) for ask in asks) == [50, 50, 55, 55]
    with pytest.raises(ValueError, match="2 of 4 prompts have 40 to 60 tokens"):
        batch(num_prompts=3).read(path, Letters())
    for text in ('[{"a": 1}]', '[{"conversations": [{"value": null}]}]'):
        path.write_text(text)
        with pytest.raises(ValueError, match="must be a JSON list of objects"):
            batch().read(path, Letters())
