# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Every public format is told by its fields and read in its own units."""

import numpy as np
import pytest

from tests.harness.traffic import TRACES
from vllm.benchmarks.eviction.trace_load import Reading, load_trace

LENGTHS = {"input_length": 40, "output_length": 1}
LINES = {
    "recording": {"timestamp": 7, **LENGTHS, "hash_ids": [1, 2, 3], "block_size": 16},
    "bailian": {"chat_id": 4, "timestamp": 7, **LENGTHS, "hash_ids": [1, 2, 3]},
    "mooncake": {"timestamp": 7000, **LENGTHS, "hash_ids": [1]},
    "mooncake-runs": {"timestamp": 7000, **LENGTHS, "hash_runs": [[1, 3]]},
    "dynamo": {
        "event": {
            "event_type": "request_end",
            "request": {
                "request_received_ms": 7000,
                "output_tokens": 1,
                "replay": {
                    "trace_block_size": 16,
                    "input_length": 40,
                    "input_sequence_hashes": [2**64 - 1, 2**63, 5],
                },
            },
        }
    },
}


def later(name, seconds):
    """The same line again, that much later."""
    line = LINES[name]
    if name == "dynamo":
        request = line["event"]["request"]
        at = request["request_received_ms"] + 1000 * seconds
        request = {**request, "request_received_ms": at}
        return {"event": {**line["event"], "request": request}}
    unit = 1000 if name.startswith("mooncake") else 1
    return {**line, "timestamp": line["timestamp"] + seconds * unit}


@pytest.mark.parametrize("name", LINES)
def test_a_format_is_detected_and_read_in_16_token_blocks(write, name):
    loaded = load_trace(write(LINES[name], later(name, 3)), Reading(block_size=16))
    assert loaded.format == name
    assert loaded.trace.arrivals.tolist() == [0.0, 3.0]
    assert loaded.trace.prompt_blocks.tolist() == [2, 2]
    assert loaded.trace.infinite_hit_rate() == 0.5


def test_events_of_dynamo_that_are_no_requests_are_left_out(write):
    tool = {"event": {"event_type": "tool_start", "tool": {"tool_class": "subagent"}}}
    trace = write(LINES["dynamo"], tool, later("dynamo", 3))
    assert len(load_trace(trace, Reading()).trace) == 2


# Requests and prompt blocks, as the traces' manifest and their lines say.
PUBLIC = {
    "dynamo_pi_request_trace.jsonl.gz": ("dynamo", 17, 4_148),
    "lmcache_miniswe_pseudo16.jsonl.zst": ("mooncake-runs", 402, None),
    "mooncake_conversation_trace.jsonl.zst": ("mooncake", 12_031, 276_491),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_traces_are_read(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name} is not in {TRACES}")
    loaded = load_trace(path, Reading())
    kind, requests, blocks = PUBLIC[name]
    assert (loaded.format, len(loaded.trace)) == (kind, requests)
    assert blocks is None or loaded.trace.prompt_blocks.sum() == blocks


def test_the_sessions_of_weka_are_read():
    path = TRACES / "weka_claude_code_rle.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {TRACES}")
    loaded = load_trace(path, Reading(sessions=5))
    assert loaded.format == "weka"
    assert len(set(loaded.trace.sessions.tolist())) == 5
    assert np.all(np.diff(loaded.trace.arrivals) >= 0)


def session(*turns):
    return {"block_size": 64, "hash_id_scope": "local", "requests": list(turns)}


def turn(at, tokens, blocks):
    return {"t": at, "in": tokens, "out": 1, "hash_runs": [[1, blocks]]}


def test_local_ids_of_two_sessions_are_different_blocks(write):
    path = write(session(turn(0, 130, 2), turn(5, 200, 3)), session(turn(0, 64, 1)))
    trace = load_trace(path, Reading(block_size=16)).trace
    assert sorted(trace.prompt_blocks.tolist()) == [4, 8, 12]
    assert trace.infinite_hit_rate() == 8 / 24


def test_a_subagents_turns_begin_with_it(write):
    sub = {"t": 100, "type": "subagent", "requests": [turn(2, 64, 1)]}
    trace = load_trace(write(session(turn(0, 64, 1), sub))).trace
    assert trace.arrivals.tolist() == [0.0, 102.0]


def test_starts_are_drawn_by_the_seed(write):
    path = write(*[session(turn(0, 64, 1))] * 20)
    times = [
        load_trace(path, Reading(seed=seed)).trace.arrivals.tolist()
        for seed in (1, 1, 2)
    ]
    assert times[0] == times[1] != times[2]


def test_with_concurrency_a_session_starts_when_another_ends(write):
    path = write(*[session(turn(0, 64, 1), turn(10, 64, 1))] * 4)
    trace = load_trace(path, Reading(concurrency=2)).trace
    assert trace.arrivals.tolist() == [0, 0, 10, 10, 10, 10, 20, 20]


def test_skipped_lines_are_named(write):
    good = LINES["mooncake"]
    path = write(good, "{", {**good, "input_length": -1}, good)
    loaded = load_trace(path, Reading(skip_bad_lines=True))
    assert len(loaded.trace) == 2
    assert [text.split(":")[0][-6:] for text in loaded.bad_lines] == [
        "line 2",
        "line 3",
    ]


def test_the_turns_of_a_chat_are_found_by_their_parents(write):
    chats = [(4, -1), (5, -1), (6, 4), (7, 6), (8, 5)]
    lines = [
        {**LINES["bailian"], "chat_id": chat, "parent_chat_id": parent}
        for chat, parent in chats
    ]
    sessions = load_trace(write(*lines)).trace.sessions.tolist()
    assert [sessions.index(each) for each in sessions] == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("name", ["recording", "mooncake", "mooncake-runs", "bailian"])
def test_convert_keeps_sessions(lab, write, tmp_path, name):
    turns = [
        {**LINES["recording"], "timestamp": i, "session": session}
        for i, session in enumerate(["a", "b", "a", "c", "b"])
    ]
    converted = tmp_path / "new.jsonl"
    assert lab("convert", write(*turns), converted, "--to", name) == 0
    sessions = load_trace(converted).trace.sessions.tolist()
    assert [sessions.index(each) for each in sessions] == [0, 1, 0, 3, 1]


def test_a_recording_of_the_engines_has_no_sessions(lab, write, tmp_path):
    converted = tmp_path / "new.jsonl"
    assert lab("convert", write(LINES["recording"]), converted) == 0
    assert "session" not in converted.read_text()
