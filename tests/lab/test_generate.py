# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction generate`: what was asked for, in the public formats.

The traffic in the file is that of the benchmarks, block by block.
"""

import json
import re
from collections import Counter
from dataclasses import fields, replace
from itertools import islice

import numpy as np
import pytest

from vllm.benchmarks.eviction.describe import describe
from vllm.benchmarks.eviction.generate_args import (
    parse_traffic,
    schedule_of,
    workload_of,
)
from vllm.benchmarks.eviction.sessions import stream, stream_concurrent, to_trace
from vllm.benchmarks.eviction.trace_load import Reading, load_trace
from vllm.benchmarks.eviction.trace_write import WRITERS
from vllm.benchmarks.eviction.workload import Mix, Workload
from vllm.benchmarks.eviction.workloads import (
    EVEN,
    P1,
    PRESETS,
    constant,
    drift,
    generate,
)

TEN_MINUTES = constant(EVEN, 600.0)


def prompt_blocks(trace):
    """Each prompt's blocks, numbered by their first use in the trace."""
    numbers = {}
    return [
        [
            numbers.setdefault(key, len(numbers))
            for key in trace.keys[first : int(first) + blocks].tolist()
        ]
        for first, blocks in zip(trace.offsets, trace.prompt_blocks, strict=False)
    ]


@pytest.mark.parametrize("name", WRITERS)
def test_the_file_holds_the_traffic_of_the_benchmarks(lab, tmp_path, name):
    path = tmp_path / "trace.jsonl.zst"
    assert lab("generate", path, "--seconds", "600", "--format", name) == 0
    loaded = load_trace(path, Reading(block_size=16))
    expected = generate(P1.workload, TEN_MINUTES)
    assert loaded.format == name
    assert loaded.trace.prompt_tokens.tolist() == expected.prompt_tokens.tolist()
    assert loaded.trace.output_tokens.tolist() == expected.output_tokens.tolist()
    assert np.allclose(
        loaded.trace.arrivals, expected.arrivals - expected.arrivals[0], atol=0.0011
    )
    assert prompt_blocks(loaded.trace) == prompt_blocks(expected)


def test_ids_are_dense(lab, tmp_path):
    path = tmp_path / "trace.jsonl"
    assert lab("generate", path, "--seconds", "300") == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    used = {block for line in lines for block in line["hash_ids"]}
    assert len(used) > 0.9 * max(used)
    for line in lines:
        assert len(line["hash_ids"]) == -(-line["input_length"] // 16)


def test_a_request_of_bailian_names_the_one_before(lab, tmp_path):
    path = tmp_path / "trace.jsonl"
    words = ["--format", "bailian", "--shares", "0,100,0", "--seconds", "600"]
    assert lab("generate", path, *words) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_id = {line["chat_id"]: line for line in lines}
    assert len(by_id) == len(lines)
    later = [line for line in lines if line["turn"] > 1]
    assert later
    for line in later:
        before = by_id[line["parent_chat_id"]]
        assert before["turn"] == line["turn"] - 1
        assert before["timestamp"] < line["timestamp"]
        full = before["input_length"] // 16
        assert before["hash_ids"][:full] == line["hash_ids"][:full]


def test_standard_output_holds_the_lines_alone(lab, tmp_path, capsysbinary):
    path = tmp_path / "trace.jsonl"
    for output in (path, "-"):
        assert lab("generate", output, "--seconds", "60") == 0
    assert capsysbinary.readouterr().out == path.read_bytes()


def test_the_seed_decides():
    one, same, other = (generate(P1.workload, TEN_MINUTES, seed) for seed in (1, 1, 2))
    assert one.keys.tobytes() == same.keys.tobytes()
    assert one.arrivals.tobytes() != other.arrivals.tobytes()


@pytest.mark.parametrize("mix", [Mix(100, 0, 0), Mix(20, 60, 20), EVEN], ids=str)
def test_shares_are_of_requests(mix):
    turns = Counter()
    for request in stream(P1.workload, constant(mix, 7200.0)):
        turns[request.session.prompt_id // 1_000_000] += 1
    total = sum(turns.values())
    # Chats are cut off by the end: an hour's has lost 4 %.
    for kind, share in enumerate((mix.single, mix.chat, mix.agent), 1):
        assert 100 * turns[kind] / total == pytest.approx(share, abs=4)


@pytest.mark.parametrize("max_turns", [1, 3, 400])
def test_the_rate_is_kept_where_turns_are_cut(max_turns):
    workload = replace(P1.workload, max_turns=max_turns, chat_gap=0.0)
    mean = len(list(stream(workload, constant(Mix(0, 100, 0), 7200.0)))) / 7200
    assert mean == pytest.approx(P1.workload.rate, rel=0.05)


def test_sessions_of_which_none_begins_are_no_endless_search():
    workload = replace(P1.workload, single_input=1e9, single_input_sigma=0.0)
    with pytest.raises(ValueError, match="--max-tokens is 16384: no session begins"):
        list(stream_concurrent(workload, Mix(100, 0, 0), 3, 2))


def test_drawing_goes_no_further_than_is_asked_for():
    """A century of traffic: what is not asked for is not drawn."""
    century = constant(EVEN, 3.15e9)
    first = list(islice(stream(P1.workload, century), 1000))
    assert len(first) == 1000
    assert first == sorted(first)


def test_long_schedules_come_in_order():
    requests = list(stream(P1.workload, constant(EVEN, 3 * 3600.0)))
    assert requests == sorted(requests)
    assert 2 * 3600 < requests[-1].arrival < 3 * 3600


def test_a_session_starts_when_another_ends():
    mix = Mix(0, 50, 50)
    requests = list(stream_concurrent(P1.workload, mix, 60, 8))
    assert requests == sorted(requests)
    arrivals = {}
    for request in requests:
        arrivals.setdefault(request.session.number, []).append(request.arrival)
    starts = np.array([times[0] for times in arrivals.values()])
    ends = np.array([times[-1] for times in arrivals.values()])
    events = np.unique(np.concatenate([starts, ends]))
    between = (events[1:] + events[:-1]) / 2
    running = [((starts < at) & (at < ends)).sum() for at in between]
    none_left = between > starts.max()
    assert set(np.array(running)[~none_left]) == {8}
    assert max(np.array(running)[none_left]) <= 8


def test_traces_of_several_concurrencies_differ_in_nothing_else():
    mix = Mix(0, 50, 50)
    traces = {
        n: list(stream_concurrent(P1.workload, mix, 100, n, comparable_up_to=32))
        for n in (4, 8, 32)
    }

    def sessions(requests):
        of_session = {}
        for each in requests:
            of_session.setdefault(each.session.number, []).append(each)
        return {
            number: [
                (r.prompt_tokens, r.output_tokens, round(r.arrival - of[0].arrival, 6))
                for r in of
            ]
            for number, of in of_session.items()
        }

    assert sessions(traces[4]) == sessions(traces[8]) == sessions(traces[32])
    uncut = list(stream_concurrent(P1.workload, mix, 100, 4))
    assert len(traces[4]) < len(uncut), "the last sessions are cut"
    assert len(sessions(traces[4])) == 100
    starts = [max(r.arrival for r in of if r.turn == 0) for of in traces.values()]
    assert starts == sorted(starts, reverse=True)


def test_higher_concurrency_has_fewer_hits():
    """Appendix B: what is reused is farther away, and every policy loses."""
    from vllm.benchmarks.eviction.replay import Candidate, replay

    rates = [
        replay(
            to_trace(stream_concurrent(P1.workload, Mix(0, 50, 50), 400, n, 64), 16),
            P1.num_blocks,
            Candidate("lru"),
        ).hit_rate
        for n in (8, 32, 64)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] - rates[-1] > 0.1


@pytest.mark.parametrize("field", fields(Workload), ids=lambda field: field.name)
def test_every_parameter_is_an_option(field):
    value = {int: 5000, float: 5000.5}[field.type]
    args = parse_traffic(["--" + field.name.replace("_", "-"), str(value)])
    _, workload = workload_of(args)
    assert getattr(workload, field.name) == value
    others = [each.name for each in fields(Workload) if each is not field]
    for name in others:
        assert getattr(workload, name) == getattr(P1.workload, name)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_it_says(name):
    preset, workload = workload_of(parse_traffic(["--preset", name]))
    assert workload == PRESETS[name].workload
    assert schedule_of(parse_traffic([]), preset) == [(3600.0, preset.mix)]


def test_lengths_are_scaled_and_times_are_not():
    args = parse_traffic(["--scale-lengths", "0.5", "--chat-input", "100"])
    _, workload = workload_of(args)
    assert workload.chat_input == 50
    assert workload.single_output == P1.workload.single_output / 2
    assert workload.max_tokens == P1.workload.max_tokens // 2
    assert workload.agent_gap == P1.workload.agent_gap
    assert workload.agent_apps == P1.workload.agent_apps


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--drift", "AM"], drift("AM")),
        (["--drift", "AM", "--segment", "60"], drift("AM", 60.0)),
        (
            ["--drift", "AM", "--segment", "60", "--seconds", "150"],
            [*drift("AM", 60.0), *drift("A", 30.0)],
        ),
        (
            ["--shares", "40,30,30", "--shares", "0,0,100", "--segment", "9"],
            [(9.0, Mix(40, 30, 30)), (9.0, Mix(0, 0, 100))],
        ),
        (["--shares", "40,30,30"], [(3600.0, Mix(40, 30, 30))]),
    ],
)
def test_schedules(words, expected):
    assert schedule_of(parse_traffic(words), P1) == expected


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--shares", "40,30,20"], "--shares 40,30,20 sum to 90: must .* sum to 100"),
        (["--shares", "40,60"], "--shares is '40,60': must be three percentages"),
        (["--shares=-10,60,50"], "must be 0 or more"),
        (["--preset", "p1"], "Unknown preset 'p1': .* Did you mean 'P1'"),
        (["--drift", "AX"], "'X': its letters must be of A, M, S"),
        (["--drift", "AM", "--shares", "0,0,100"], "give one of them"),
        (["--segment", "60"], "--segment needs --drift"),
        (["--seconds", "0"], "--seconds is 0: must be more than 0"),
        (["--chat-turns", "0.5"], "--chat-turns is 0.5: must be 1 or more"),
        (["--rate", "nan"], "--rate is nan: must be more than 0"),
        (["--max-tokens", "900"], "--max-tokens is 900: must be more than the system"),
        (
            ["--max-tokens", "3000", "--shares", "0,0,100"],
            "--max-tokens is 3000: must be more than .* turn of agents, 3162 tokens",
        ),
        (
            ["--single-input", "99999", "--shares", "100,0,0"],
            "of single turns, 101149 tokens",
        ),
        (["--scale-lengths", "0"], "--scale-lengths is 0"),
        (["--scale-lengths", "1e-9"], "--max-tokens is 2: must be more than the first"),
        (["--scale-lengths", "inf"], "--scale-lengths is inf: must be more than 0"),
        (["--scale-lengths", "1e9"], "1e.09: then max_tokens is .* at most"),
        (["--shares", "nan,50,50"], "--shares nan,50,50 sum to nan"),
        (["--format", "bailan"], "Cannot write format 'bailan'.* mean 'bailian'"),
        (["--block-size", "32"], "blocks of format mooncake have 16 or 512"),
        (["--seed", "-1"], "--seed is -1"),
        (["--sessions", "9"], "--sessions needs --concurrency"),
        (["--concurrency", "9"], "--concurrency needs --sessions"),
        (["--concurrency", "0", "--sessions", "3"], "--concurrency is 0"),
        (["--concurrency", "4", "--sessions", "3", "--seconds", "9"], "one mix"),
        (
            ["--concurrency", "4", "--sessions", "3", "--comparable-up-to", "2"],
            "--comparable-up-to is 2: must be at least --concurrency, 4",
        ),
    ],
)
def test_a_fault_is_one_line(lab, tmp_path, capsys, words, why):
    path = tmp_path / "trace.jsonl"
    assert lab("generate", path, *words) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("vllm bench eviction: error: ")
    assert re.search(why, error), error
    assert not path.exists()


def test_a_word_for_a_number_is_one_line(lab, tmp_path, capsys):
    with pytest.raises(SystemExit) as status:
        lab("generate", tmp_path / "trace.jsonl", "--chat-turns", "many")
    assert status.value.code == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "--chat-turns: invalid float value: 'many'" in error


def test_a_trace_can_be_converted_to_any_format(lab, tmp_path):
    path = tmp_path / "trace.jsonl"
    assert lab("generate", path, "--seconds", "300") == 0
    expected = prompt_blocks(load_trace(path).trace)
    for name in WRITERS:
        converted = tmp_path / name
        assert lab("convert", path, converted, "--to", name) == 0
        loaded = load_trace(converted)
        assert loaded.format == name
        assert prompt_blocks(loaded.trace) == expected


def test_a_trace_without_sessions_has_none_that_a_format_made_up(lab, write, tmp_path):
    """Bailian's names a session in each line."""
    lines = [
        {"timestamp": at, "input_length": 20, "output_length": 1, "hash_ids": [1, at]}
        for at in range(3)
    ]
    converted = tmp_path / "new.jsonl"
    assert lab("convert", write(*lines), converted, "--to", "bailian") == 0
    trace = load_trace(converted).trace
    assert len(set(trace.sessions.tolist())) == 3


def test_short_prompts_are_written_and_read(lab, tmp_path):
    path = tmp_path / "trace.jsonl"
    words = ["--scale-lengths", "0.01", "--seconds", "300"]
    assert lab("generate", path, *words) == 0
    # The first line does not tell blocks of 16 tokens from those of 512.
    lines = path.read_text().splitlines()
    at = next(
        i for i, line in enumerate(lines) if json.loads(line)["input_length"] < 17
    )
    path.write_text("\n".join(lines[at:]) + "\n")
    trace = load_trace(path).trace
    assert trace.block_size == 16
    args = parse_traffic(words)
    expected = generate(workload_of(args)[1], constant(EVEN, 300.0))
    names = prompt_blocks(trace)
    assert [len(each) for each in names] == expected.prompt_blocks.tolist()[at:]


def test_describe_measures_sessions(lab, write, capsys):
    def turn(at, tokens, ids, session):
        return {
            "timestamp": 1000 * at,
            "input_length": tokens,
            "output_length": 1,
            "hash_ids": ids,
            "session": session,
        }

    lines = [
        turn(0, 1024, [1, 2], 7),
        turn(10, 2048, [1, 2, 3, 4], 7),
        turn(20, 1024, [1, 5], 8),
        turn(30, 512, [6], 9),
    ]
    assert lab("describe", write(*lines), "--json", "-") == 0
    values = {
        row["measure"]: row["value"] for row in json.loads(capsys.readouterr().out)
    }
    assert values["single-turn"] == 0.5
    assert values["gap in a session p50"] == 10
    assert values["multi-turn session lasts p50"] == 10
    assert values["turns of multi-turn, mean"] == 2
    assert values["session's blocks p50"] == 2
    assert values["blocks of the largest tenth"] == 4 / 7
    assert values["blocks of single turns only"] == 2 / 6
    assert values["uses of single turns only"] == 2 / 9
    assert values["used once, of single turns only"] == 1
    assert values["blocks of several sessions, a multi-turn one too"] == 1 / 6
    assert values["uses of several sessions, a multi-turn one too"] == 3 / 9


def test_the_twin_is_like_the_trace_it_is_a_twin_of():
    """Against "When Fancy Eviction Fails", section 4, as far as two hours can show."""
    preset = PRESETS["production"]
    trace = generate(preset.workload, constant(preset.mix, 7200.0))
    values = {row["measure"]: row["value"] for row in describe(trace)}
    assert values["prompt length of multi-turn p50"] == pytest.approx(66_605, rel=0.3)
    # Between the single turns and the others there is a gap, where the median lies.
    assert 3_386 / 2 < values["prompt length p50"] < 3_386 * 2
    assert values["session's blocks p50"] == pytest.approx(45, rel=0.15)
    assert values["gap in a session p50"] == pytest.approx(8.2, rel=0.4)
    assert values["gaps under 22 minutes"] == pytest.approx(0.997, abs=0.004)
    assert values["multi-turn session lasts p50"] == pytest.approx(55, rel=0.4)
    assert values["blocks of the largest tenth"] == pytest.approx(0.762, abs=0.08)
    assert values["uses of single turns only"] == pytest.approx(0.114, abs=0.05)
    assert values["used once"] == pytest.approx(0.543, abs=0.15)
