# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Traces of block ids, read into columns."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_load import Reading, load_trace


def write(folder: Path, *requests: dict[str, Any], name: str = "trace.jsonl") -> Path:
    text = "".join(json.dumps(request) + "\n" for request in requests).encode()
    if name.endswith(".gz"):
        text = gzip.compress(text)
    if name.endswith(".zst"):
        text = zstandard.ZstdCompressor().compress(text)
    path = folder / name
    path.write_bytes(text)
    return path


def request(
    at: float, tokens: int, ids: list[int], output: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "timestamp": at,
        "input_length": tokens,
        "output_length": output,
        "hash_ids": ids,
        **more,
    }


def runs(of_ids: list[list[int]]) -> dict[str, Any]:
    """A request of Mooncake's format whose ids are in runs."""
    line = request(0, 17, [])
    del line["hash_ids"]
    return {**line, "hash_runs": of_ids}


def read(path: Path, block_size: int | None = None, **more: Any) -> Trace:
    return load_trace(path, Reading(block_size, **more)).trace


def keys_of(trace: Trace, index: int) -> list[int]:
    return trace.keys[trace.offsets[index] : trace.offsets[index + 1]].tolist()


def test_a_partial_last_block_has_no_key(tmp_path: Path) -> None:
    path = write(tmp_path, request(0, 1000, [7, 8]), request(0, 1024, [7, 8]))
    trace = read(path)
    assert trace.block_size == 512
    assert trace.prompt_blocks.tolist() == [1, 2]
    assert keys_of(trace, 0) == keys_of(trace, 1)[:1]


def test_an_id_becomes_as_many_smaller_blocks_as_it_holds(tmp_path: Path) -> None:
    path = write(tmp_path, request(0, 1000, [7, 8]), request(0, 520, [7, 9]))
    trace = read(path, 16)
    assert trace.block_size == 16
    assert trace.prompt_blocks.tolist() == [62, 32]
    first, second = keys_of(trace, 0), keys_of(trace, 1)
    assert first[:32] == second[:32]
    assert not set(first[32:]) & set(second[32:])
    assert len(set(first)) == len(first)


def test_blocks_of_an_answer_are_no_one_elses(tmp_path: Path) -> None:
    # 500 + 600 tokens fill two blocks, and the last token has no KV in the third.
    path = write(tmp_path, request(0, 500, [7], 1037), request(1, 1536, [7, 8, 9], 1))
    trace = read(path)
    assert len(keys_of(trace, 0)) == 3
    assert not set(keys_of(trace, 0)) & set(keys_of(trace, 1))
    assert 0 not in trace.keys


def test_runs_of_ids_are_the_ids_written_out(tmp_path: Path) -> None:
    ids = [3, 4, 5, 9]
    runs = request(0, 64, ids)
    del runs["hash_ids"]
    runs["hash_runs"] = [[3, 3], [9, 1]]
    written_out = read(write(tmp_path, request(0, 64, ids)), 16)
    assert read(write(tmp_path, runs), 16).keys.tolist() == (written_out.keys.tolist())


def test_requests_come_in_order_of_time_from_zero(tmp_path: Path) -> None:
    path = write(  # a recording, which is in order of admission
        tmp_path,
        request(3, 16, [1], block_size=16),
        request(1.5, 32, [1, 2], block_size=16),
        request(9, 48, [1, 2, 3], block_size=16),
    )
    trace = read(path)
    assert trace.arrivals.tolist() == [0.0, 1.5, 7.5]
    assert trace.prompt_tokens.tolist() == [32, 16, 48]
    assert len(read(path, seconds=1.5)) == 2


def test_sessions_are_numbered_as_they_come(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        request(0, 16, [1], session=40),
        request(1, 16, [2]),
        request(2, 16, [3], session=5),
        request(3, 16, [1], session=40),
    )
    assert read(path).sessions.tolist() == [0, -1, 1, 0]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz", "trace.jsonl.zst"])
def test_compressed_files_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, request(0, 32, [1, 2]), request(5, 32, [1, 3]), name=name)
    assert read(path, 16).infinite_hit_rate() == 0.25


@pytest.mark.parametrize("name", ["trace.jsonl.gz", "trace.jsonl.zst"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, *(request(at, 32, [1, at]) for at in range(99)), name=name)
    packed = path.read_bytes()
    for damaged in (b"no archive" + packed, packed[:99] + bytes(9) + packed[108:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}(: cannot be read|, line)"):
            read(path, 16)


def test_an_empty_file_holds_no_request(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trace.jsonl: holds no request"):
        read(write(tmp_path))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"timestamp": 0, "input_length": 16, "output_length": 1}, "no 'hash_ids'"),
        (request(0, 48, [1, 2]), "2 block ids do not cover 48 tokens"),
        (request(0, 16, [-1]), "block id -1 is negative"),
        (request(0, -16, []), "lengths are -16 and 1"),
        (request(0, 16, [1]) | {"timestamp": "noon"}, "noon"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: dict[str, Any], why: str) -> None:
    path = write(tmp_path, request(0, 16, [1]), bad)
    with pytest.raises(ValueError, match=f"trace.jsonl, line 2: .*{why}") as error:
        read(path, 16)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (request(0, 16, [1], 2**32), "must be 4,294,967,295 tokens together"),
        (request(0, 16, [1], 2**30), "an answer has 1,073,741,824 tokens"),
        (request(0, 32, [1.5, 2]), "block ids must be whole numbers"),
        (request(0, 32, [1, 2**63]), "block ids must be whole numbers"),
        (request(0, 32, [[1], [2]]), "block ids must be whole numbers"),
        (runs([[0, 10**15]]), "a run has 1,000,000,000,000,000 block ids"),
        (runs([[0, -3]]), "a run has -3 block ids"),
    ],
)
def test_figures_that_cannot_be_are_named_and_can_be_skipped(
    tmp_path: Path, bad: dict[str, Any], why: str
) -> None:
    good = runs([[1, 1]]) if "hash_runs" in bad else request(0, 17, [1, 2])
    path = write(tmp_path, good, bad, good)
    with pytest.raises(ValueError, match=f"trace.jsonl, line 2: .*{why}"):
        read(path)
    skipped = load_trace(path, Reading(skip_bad_lines=True))
    assert len(skipped.bad_lines) == 1
    assert skipped.trace.output_tokens.tolist() == [1, 1]


def test_a_line_of_other_bytes_or_too_deep_is_named_and_can_be_skipped(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, request(0, 17, [1, 2]))
    for bad in (b"\xff\xfe\x00{", b"[" * 100_000):
        path.write_bytes(path.read_bytes().splitlines()[0] + b"\n" + bad + b"\n")
        with pytest.raises(ValueError, match=r"trace.jsonl, line 2: "):
            read(path)
        assert len(read(path, skip_bad_lines=True)) == 1


@pytest.mark.parametrize("tokens_per_id", [16, 512])
def test_prompts_too_short_to_tell_the_blocks_are_read_by_the_others(
    tmp_path: Path, tokens_per_id: int
) -> None:
    """Mooncake's format names no block size; one of 16 tokens has one id in both."""
    short = [request(0, 16, [3]), request(1, 5, [4])]
    long = request(2, tokens_per_id + 1, [3, 9])
    for lines in ([*short, long], [long, *(each | {"timestamp": 3} for each in short)]):
        trace = read(write(tmp_path, *lines), 16)
        assert trace.prompt_tokens.tolist() == [line["input_length"] for line in lines]
        at = lines.index(long)
        first = lines.index(next(line for line in lines if line["hash_ids"] == [3]))
        assert keys_of(trace, first)[0] == keys_of(trace, at)[0]


def test_a_file_of_short_prompts_alone_has_blocks_of_16_tokens(tmp_path: Path) -> None:
    trace = read(write(tmp_path, request(0, 16, [3]), request(1, 16, [3])))
    assert trace.block_size == 16
    assert trace.prompt_blocks.tolist() == [1, 1]


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, request(0, 16, [1]))
    path.write_text(path.read_text() + "timestamp,input_length\n")
    with pytest.raises(ValueError, match="trace.jsonl, line 2: "):
        read(path)


@pytest.mark.parametrize("block_size", [0, -16, 24, 1024])
def test_a_block_size_that_does_not_divide_an_id(
    tmp_path: Path, block_size: int
) -> None:
    path = write(tmp_path, request(0, 512, [1]))
    with pytest.raises(ValueError, match=f"--block-size is {block_size}: must divide"):
        read(path, block_size)
