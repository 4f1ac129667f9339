# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction calibrate`: a law is recovered from what obeys it, an engine is
measured as it says, and the file serves the engine and the lab."""

import argparse
import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny_model import ENGINE_ENVIRONMENT, make_tiny_llama
from vllm.benchmarks.eviction import calibrate_engine
from vllm.benchmarks.eviction.calibrate import compared, measure, samples
from vllm.benchmarks.eviction.cost_models import parse_cost
from vllm.benchmarks.eviction.prefill_law import (
    Attention,
    Law,
    Point,
    attention_of,
    fit,
)
from vllm.v1.core.eviction.cost_file import read_calibration
from vllm.v1.core.eviction.model_flops import Flops

LONGEST, BLOCK, BUDGET = 4100, 32, 1024  # tokens

# Of which a good part looks at all tokens: a window that is soon full is no depth.
attentions = st.builds(Attention, st.floats(0.25, 1.0), st.integers(1, 8192))
laws = st.builds(
    Law,
    request=st.floats(0.0, 0.1),
    step=st.floats(0.0, 0.1),
    token=st.floats(1e-5, 1e-2),
    look=st.floats(0.0, 1e-6),
    attention=attentions,
)


def obeying(law: Law, budget: int = BUDGET) -> list[Point]:
    """What would be measured of an engine that obeys a law."""
    points = []
    for each in samples(LONGEST, BLOCK):
        steps = -(-each.tokens // budget)
        seconds = law.seconds(each.depth, each.tokens, steps)
        points.append(Point(each.depth, each.tokens, steps, seconds))
    return points


# ---- The law ----


def test_looks_of_a_prompt_by_hand():
    # Behind 10 tokens the next ones look at 10, 11 and 12.
    assert Attention().looks(10, 3) == 33
    # With a window of 11 in half of the layers: (33 + 10 + 11 + 11) / 2.
    assert Attention(0.5, 11).looks(10, 3) == 32.5
    assert Attention().looks(0, 1) == 0


def test_attention_is_the_models():
    assert attention_of(Flops(100.0, 3.0, 1.0, 128)) == Attention(0.75, 128)
    assert attention_of(Flops(100.0, 3.0, 0.0, 0)) == Attention(1.0, 0)
    assert attention_of(Flops(100.0, 0.0, 0.0, 0)) == Attention()


@given(law=laws)
def test_a_law_is_recovered_from_what_obeys_it(law: Law):
    points = obeying(law)
    found = fit(points, law.attention)
    small = 1e-5 * min(point.seconds for point in points)
    assert found.token == pytest.approx(law.token, rel=1e-4)
    assert found.request == pytest.approx(law.request, rel=1e-4, abs=small)
    assert found.step == pytest.approx(law.step, rel=1e-4, abs=small)
    least = 1e-4 * law.token / LONGEST
    assert found.look == pytest.approx(law.look, rel=1e-4, abs=least)
    # Also where nothing was measured.
    for depth, tokens, steps in ((LONGEST, 7, 1), (0, 3 * LONGEST, 13)):
        expected = law.seconds(depth, tokens, steps)
        assert found.seconds(depth, tokens, steps) == pytest.approx(expected, rel=1e-3)


def test_without_prompts_of_several_steps_a_request_counts_as_a_step():
    law = Law(0.02, 0.03, 1e-4, 1e-9)
    found = fit(obeying(law, budget=LONGEST), law.attention)
    assert (found.request, found.step) == (0.0, pytest.approx(0.05))
    assert found.token == pytest.approx(1e-4)


def test_units_are_those_of_a_token_at_depth_zero():
    law = Law(0.0, 0.0, 1e-4, 2e-8, Attention(0.75, 100))
    assert law.per_token == pytest.approx(1.5e-4)
    assert law.per_window_token == pytest.approx(0.5e-4)


def relative_error(law: Law, points: list[Point]) -> float:
    return sum(
        (law.seconds(p.depth, p.tokens, p.steps) / p.seconds - 1) ** 2 for p in points
    )


@given(
    seconds=st.lists(st.floats(1e-3, 1.0), min_size=29, max_size=29),
    other=st.tuples(*[st.floats(0.0, 1.0)] * 4),
)
def test_nothing_is_negative_and_no_other_law_is_closer(seconds, other):
    """Whatever was measured."""
    asked = samples(LONGEST, BLOCK)
    points = [
        Point(each.depth, each.tokens, -(-each.tokens // BUDGET), taken)
        for each, taken in zip(asked, seconds, strict=False)
    ]
    try:
        found = fit(points, Attention())
    except ValueError as error:
        assert "does not grow" in str(error)
        return
    assert min(found.request, found.step, found.token, found.look) >= 0.0
    scale = 0.1, 0.1, 1e-4, 1e-8
    law = Law(*(share * unit for share, unit in zip(other, scale, strict=True)))
    assert relative_error(found, points) <= relative_error(law, points) + 1e-9


def test_a_device_whose_time_does_not_grow_is_refused():
    points = [Point(p.depth, p.tokens, p.steps, 0.01) for p in obeying(Law(0, 0, 1, 0))]
    with pytest.raises(ValueError, match="does not grow with the number of tokens"):
        fit(points, Attention())


# ---- What is measured ----


@given(longest=st.integers(128, 200_000), block=st.sampled_from([16, 32]))
def test_samples_fit_are_of_whole_blocks_and_of_several_depths(longest, block):
    asked = samples(longest, block)
    assert len(set(asked)) == len(asked) < 40
    assert all(each.tokens > 0 for each in asked)
    assert all(each.depth + each.tokens <= longest for each in asked)
    assert all(each.depth % block == each.tokens % block == 0 for each in asked)
    assert len({each.depth for each in asked}) == 4
    depths = [each.depth for each in asked]
    assert depths == sorted(depths) and depths[0] == 0
    assert max(each.tokens for each in asked) == longest // block * block


def test_prompts_of_three_blocks_are_refused():
    with pytest.raises(ValueError, match="127 tokens at most, fewer than 4 blocks"):
        samples(127, 32)


class FakeEngine:
    """Caches prefixes in a pool with room for the longest prompt and one block more,
    and needs the time that a law says; `slow` says when it needs ten times that."""

    block_size, longest, budget, vocabulary = BLOCK, LONGEST, BUDGET, 5000

    def __init__(self, law: Law, slow=lambda asked: False):
        self.law = law
        self.asked = 0
        self.tokens: list[np.ndarray] = []
        self._slow = slow
        self._cached: OrderedDict[bytes, None] = OrderedDict()

    def ask(self, tokens):
        self.asked += 1
        self.tokens.append(tokens)
        ends = range(BLOCK, len(tokens) + 1, BLOCK)
        prefixes = [tokens[:end].tobytes() for end in ends]
        hits = 0
        while hits < (len(tokens) - 1) // BLOCK and prefixes[hits] in self._cached:
            hits += 1
        for prefix in prefixes[::-1]:  # tail first: it is the first to go
            self._cached[prefix] = None
            self._cached.move_to_end(prefix)
        while len(self._cached) > LONGEST // BLOCK + 1:
            self._cached.popitem(last=False)
        depth = hits * BLOCK
        new = len(tokens) - depth
        seconds = self.law.seconds(depth, new, -(-new // BUDGET))
        return seconds * (10 if self._slow(self.asked) else 1), depth


LAW = Law(0.002, 0.004, 5e-5, 4e-9)


def test_each_sample_is_measured_behind_its_cached_prefix():
    engine = FakeEngine(LAW)
    points = measure(engine, 3)
    asked = {(each.depth, each.tokens) for each in samples(LONGEST, BLOCK)}
    assert {(point.depth, point.tokens) for point in points} == asked
    assert len(points) == len(asked)
    assert {point.steps for point in points} == {1, 2, 4}
    for point in points:
        expected = LAW.seconds(point.depth, point.tokens, point.steps)
        assert point.seconds == pytest.approx(expected)
    assert fit(points, Attention()).step == pytest.approx(LAW.step)
    tokens = np.concatenate(engine.tokens)
    assert tokens.min() >= 1000 and tokens.max() < 5000


def test_a_first_round_and_a_slow_round_do_not_count():
    in_a_round = len(samples(LONGEST, BLOCK)) + 3  # a prefix for each depth but zero
    engine = FakeEngine(LAW, slow=lambda asked: (asked - 1) // in_a_round in (0, 2))
    assert measure(engine, 3) == measure(FakeEngine(LAW), 3)
    assert engine.asked == 4 * in_a_round


def test_what_an_engine_does_not_find_counts_as_computed():
    engine = FakeEngine(LAW)
    ask = engine.ask

    def forgetful(tokens):
        engine._cached.clear()
        return ask(tokens)

    engine.ask = forgetful
    points = measure(engine, 1)
    assert {point.depth for point in points} == {0}
    expected = [LAW.seconds(0, point.tokens, point.steps) for point in points]
    assert [point.seconds for point in points] == pytest.approx(expected)


def test_a_row_for_each_point():
    (row,) = compared([Point(64, 32, 1, 0.02)], Law(0.001, 0.004, 5e-4, 0.0))
    assert row["measured_ms"] == 20
    assert row["fitted_ms"] == pytest.approx(21)
    assert row["error_percent"] == pytest.approx(5)


# ---- The command ----


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(make_tiny_llama(tmp_path_factory.mktemp("model")))


@pytest.mark.needs_upstream
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--repeats", "0"], "--repeats is 0: must be 1 or more."),
        (["--out", "/nowhere/x.json"], "--out is /nowhere/x.json: its folder does not"),
        (["--out", "/"], "--out is /: is a folder"),
        (["--json", "/nowhere/x.json"], "--json is /nowhere/x.json: its folder"),
        (["--model", "/no/model"], "--model /no/model: "),
        (["--no-enable-prefix-caching"], "prefix caching is off"),
        (["--block-sise", "32"], "unrecognized arguments: --block-sise 32."),
        (["--block-size", "x"], "argument --block-size: invalid int value: 'x'."),
    ],
)
def test_a_fault_is_one_line(lab, capsys, model, words, why):
    assert lab("calibrate", "--model", model, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vllm bench eviction: error: ")
    assert why in line


def test_a_model_must_be_named(lab, capsys):
    with pytest.raises(SystemExit) as end:
        lab("calibrate")
    assert end.value.code == 2
    assert "required: --model" in capsys.readouterr().err


ENGINE = ["--dtype", "float32", "--block-size", "32", "--max-model-len", "1024"]


@pytest.mark.slow
@pytest.mark.needs_upstream
def test_an_engine_serves_what_is_to_be_measured(model, monkeypatch):
    """A real one. How long it takes is not looked at: that is the machine's affair."""
    for name, value in ENGINE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # The engine core is a process of its own, as it is for a user.
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    words = [*ENGINE, "--enforce-eager", "--num-gpu-blocks-override", "40"]
    args = argparse.Namespace(model=model, engine_words=words)
    engine, attention = calibrate_engine._checked(calibrate_engine._engine_args(args))
    assert attention == Attention(1.0, 0)
    measured = calibrate_engine._measure_apart(engine, repeats=1)
    # Of 31 blocks, quarters; a step computes a quarter of the longest prompt.
    found = {(p.depth, p.tokens): p for p in measured.points}
    assert set(found) == {(each.depth, each.tokens) for each in samples(1023, 32)}
    assert {depth for depth, _ in found} == {0, 224, 480, 736}
    assert (found[0, 992].steps, found[224, 480].steps, found[0, 224].steps) == (
        4,
        2,
        1,
    )
    assert all(point.seconds > 0 for point in measured.points)
    assert (measured.block_size, measured.dtype) == (32, "float32")
    assert "core" in measured.device


@pytest.fixture
def lawful(monkeypatch) -> None:
    """Whatever engine is asked for obeys a law."""

    def measured(engine_args, repeats):
        assert engine_args.enable_prefix_caching and engine_args.block_size == 32
        points = measure(FakeEngine(LAW), repeats)
        return calibrate_engine.Measured(points, "a device", "float32", BLOCK)

    monkeypatch.setattr(calibrate_engine, "_measure_apart", measured)


@pytest.mark.needs_upstream
def test_the_file_is_read_by_the_lab_and_says_what_was_measured(
    lab, lawful, model, tmp_path, capsys
):
    path = str(tmp_path / "tiny.json")
    assert lab("calibrate", "--model", model, "--out", path, *ENGINE) == 0
    printed = capsys.readouterr().out
    assert "A request costs 2 ms, a step 4 ms, a token 50 us, and 4 ns more" in printed
    assert "80 tokens at depth zero (2.5 blocks)" in printed
    assert f"--eviction-config.cost_file {path}" in printed
    found = read_calibration(path)
    assert found.per_token == pytest.approx(LAW.look / LAW.token)
    assert (found.step_tokens, found.block_size) == (pytest.approx(80), 32)
    assert found.title.endswith(" on a device") and found.date.endswith("+00:00")
    assert len(found.points) == len(samples(LONGEST, BLOCK))
    cost = parse_cost(path)
    assert (cost.name, cost.per_token) == (found.title, found.per_token)


@pytest.mark.needs_upstream
def test_the_table_goes_where_it_is_wanted(
    lab, lawful, model, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert lab("calibrate", "--model", model, "--json", "-", *ENGINE) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["depth"] for row in rows} == {p.depth for p in samples(LONGEST, BLOCK)}
    for row in rows:
        assert row["fitted_ms"] == pytest.approx(row["measured_ms"])
    # Named after the model, where no --out says otherwise.
    assert [path.name for path in tmp_path.iterdir()] == [
        f"{Path(model).name}.cost.json"
    ]


@pytest.mark.needs_upstream
def test_an_interrupt_leaves_no_file(lab, model, tmp_path, monkeypatch, capsys):
    def interrupted(engine_args, repeats):
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate_engine, "_measure_apart", interrupted)
    path = tmp_path / "x.json"
    assert lab("calibrate", "--model", model, "--out", path, *ENGINE) == 130
    assert "Interrupted: nothing is written." in capsys.readouterr().err
    assert not path.exists()
