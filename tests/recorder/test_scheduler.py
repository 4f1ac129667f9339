# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What is recorded under vLLM's own scheduler, with statistics switched off."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recorder.driven_scheduler import BLOCK_SIZE, DrivenScheduler
from tests.recorder.recording import read
from vllm.v1.core.eviction import attach

POLICIES = ["lru", "s3fifo", "adaptive"]


def open_scheduler(path: Path, policy: str = "lru", **options: Any) -> DrivenScheduler:
    return DrivenScheduler(policy=policy, eviction_trace_file=str(path), **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("log_stats", [False, True])
def test_each_admitted_request_is_a_line(
    path: Path, policy: str, log_stats: bool
) -> None:
    engine = open_scheduler(path, policy, log_stats=log_stats)
    engine.add([1] * 10, output=5, arrival=100.0)
    engine.add([2] * 8, output=3, arrival=101.5)
    engine.run()
    engine.close()
    first, second = read(path)
    assert (first["input_length"], first["output_length"]) == (10, 5)
    assert (second["input_length"], second["output_length"]) == (8, 3)
    assert (len(first["hash_ids"]), len(second["hash_ids"])) == (3, 2)
    assert (first["timestamp"], second["timestamp"]) == (0.0, 1.5)
    assert first["block_size"] == BLOCK_SIZE


def test_output_that_is_asked_for_again_has_the_ids_of_a_prompt(path: Path) -> None:
    """The second turn of a chat: its prompt begins with all of the first turn."""
    engine = open_scheduler(path)
    engine.add([1] * 8, output=9)  # output tokens are all 7
    engine.run()
    engine.add([1] * 8 + [7] * 8 + [2] * 4)
    engine.add([1] * 8 + [7] * 4 + [3] * 4)
    engine.run()
    engine.close()
    first, second, third = (line["hash_ids"] for line in read(path))
    assert second[:2] == first == third[:2]
    assert second[2] == third[2] and second[3] != third[3]


def test_timestamps_are_of_the_arrival_not_of_the_admission(path: Path) -> None:
    """The second has no room and waits; a replay has to let it wait too."""
    engine = open_scheduler(path, num_blocks=10)
    engine.add([1] * 24, output=10, arrival=50.0)
    engine.add([2] * 24, output=1, arrival=50.125)
    engine.run()
    engine.close()
    assert [line["timestamp"] for line in read(path)] == [0.0, 0.125]


def test_lines_are_in_order_of_admission(path: Path) -> None:
    engine = open_scheduler(path)
    for number in range(1, 9):
        engine.add([number] * number, output=45 - 5 * number)  # the last ends first
    engine.run()
    engine.close()
    assert [line["input_length"] for line in read(path)] == list(range(1, 9))


def test_an_aborted_request_is_recorded_as_far_as_it_came(path: Path) -> None:
    engine = open_scheduler(path, num_blocks=10)
    running = engine.add([1] * 24, output=50)
    waiting = engine.add([2] * 24, output=50)
    for _ in range(5):
        engine.step()
    assert list(engine.hits) == [running.request_id]
    engine.abort(waiting)  # was never admitted
    engine.abort(running)
    engine.add([3] * 4)
    engine.run()
    engine.close()
    first, second = read(path)
    assert (first["input_length"], first["output_length"]) == (24, 5)
    assert second["input_length"] == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_preempted_request_is_recorded_once(path: Path, policy: str) -> None:
    engine = open_scheduler(path, policy, num_blocks=9)
    for number in range(4):
        engine.add([number] * 8, output=16)  # together they need 24 blocks
    engine.run()
    engine.close()
    assert engine.preemptions > 0
    lines = read(path)
    assert [line["input_length"] for line in lines] == [8] * 4
    assert [line["output_length"] for line in lines] == [16] * 4
    assert len({line["hash_ids"][0] for line in lines}) == 4


def test_requests_that_are_running_at_the_end_are_not_recorded(path: Path) -> None:
    """Their output length is not known. (A server aborts them first.)"""
    engine = open_scheduler(path)
    engine.add([1] * 8, output=50)
    engine.add([2] * 8, output=1)
    engine.step()
    engine.step()
    engine.close()
    (line,) = read(path)
    assert line["output_length"] == 1


def test_nothing_of_a_prompt_is_in_the_file(path: Path) -> None:
    """Only numbers under the five names, and no token, hash or id of a request."""
    engine = open_scheduler(path)
    requests = [engine.add([i] * 9, output=2) for i in range(20)]
    hashes = [bytes(block) for request in requests for block in request.block_hashes]
    engine.run()
    engine.close()
    data = path.read_bytes()
    for line in read(path):
        assert set(line) == {
            "timestamp",
            "input_length",
            "output_length",
            "hash_ids",
            "block_size",
        }
        values = [*line.pop("hash_ids"), *line.values()]
        assert all(isinstance(value, int | float) for value in values)
    for block in hashes:
        for part in (block[:8], block[-8:]):
            for order in ("little", "big"):
                number = int.from_bytes(part, order)
                for form in (number, number >> 11, number & (2**53 - 1)):
                    assert str(form).encode() not in data


@pytest.mark.parametrize("policy", ["lru", "s3fifo"])
def test_a_replay_of_the_recording_hits_what_the_original_hit(
    path: Path, policy: str
) -> None:
    """The recording holds all that the cache's decisions depend on: requests made
    of its ids hit the same tokens, each of them, in a pool that evicts all the
    time."""
    random.seed(0)
    systems = [[1000 + i] * 12 for i in range(12)]
    engine = open_scheduler(path, policy, num_blocks=40)
    for number in range(300):
        prompt = random.choice(systems) + [number] * random.randrange(1, 30)
        engine.add(prompt, output=random.randrange(1, 6))
        if number % 3 == 0:
            engine.run()
    engine.run()
    engine.close()

    replay = DrivenScheduler(num_blocks=40, policy=policy)
    for number, line in enumerate(read(path)):
        tokens: list[int] = []
        for i in line["hash_ids"]:
            tokens += [i] * BLOCK_SIZE
        replay.add(tokens[: line["input_length"]], output=line["output_length"])
        if number % 3 == 0:
            replay.run()
    replay.run()
    assert list(engine.hits.values()) == list(replay.hits.values())
    assert 0 < sum(map(bool, engine.hits.values())) < 300


def test_a_full_recording_does_not_disturb_the_scheduler(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread never comes to run; requests are served all the same."""
    from vllm.v1.core.eviction import recorder

    monkeypatch.setattr(recorder.Recorder, "_run", lambda self: None)
    monkeypatch.setattr(recorder, "MAX_PENDING_BLOCKS", 10)
    engine = open_scheduler(path)
    for number in range(50):
        engine.add([number] * 8)
    engine.run()
    hooks: Any = engine.scheduler.eviction
    assert hooks.recorder.dropped == 45
    engine.close()


def test_without_prefix_caching_nothing_is_recorded(
    path: Path, warnings_logged: list[str]
) -> None:
    pool = SimpleNamespace(enable_caching=False)
    cache = SimpleNamespace(
        eviction_policy="lru", eviction_trace_file=str(path), hole_filling="auto"
    )
    scheduler: Any = SimpleNamespace(
        kv_cache_manager=SimpleNamespace(block_pool=pool),
        vllm_config=SimpleNamespace(cache_config=cache),
    )
    assert attach.attach_eviction(scheduler) is None
    (warning,) = warnings_logged
    assert "--eviction-trace-file" in warning and "prefix caching is off" in warning
    assert not path.exists()


@pytest.mark.parametrize(
    "given, written",
    [
        ("trace.jsonl", "trace.dp2.jsonl"),
        ("trace.jsonl.gz", "trace.jsonl.dp2.gz"),
        ("trace", "trace.dp2"),
        ("run.1/trace", "run.1/trace.dp2"),
    ],
)
def test_each_data_parallel_rank_has_its_file(
    tmp_path: Path, given: str, written: str
) -> None:
    (tmp_path / "run.1").mkdir()
    parallel = SimpleNamespace(data_parallel_index=2)
    scheduler: Any = SimpleNamespace(
        vllm_config=SimpleNamespace(parallel_config=parallel),
        kv_cache_manager=SimpleNamespace(block_pool=SimpleNamespace(hash_block_size=4)),
    )
    attach._start_recorder(scheduler, str(tmp_path / given)).close()
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == [tmp_path / written]


def test_a_line_is_plain_json_of_one_line(path: Path) -> None:
    engine = open_scheduler(path)
    engine.add([1] * 4)
    engine.run()
    engine.close()
    (text,) = path.read_text().splitlines()
    assert json.loads(text) and " " not in text
