# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What stands in a line."""

import os
from hashlib import blake2b, sha256
from pathlib import Path

import pytest

from tests.recorder.recording import (
    BLOCK_SIZE,
    hashes_of,
    read,
    record_all,
    record_of,
)


def test_a_line_holds_lengths_and_one_id_for_each_block(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record_all(
        path,
        [
            record_of(1, [1, 2], tail=5, arrival=1000.25, output=9),
            record_of(2, [1], arrival=1001.5, output=3),
        ],
    )
    first, second = read(path)
    assert set(first) == {
        "timestamp",
        "input_length",
        "output_length",
        "hash_ids",
        "block_size",
    }
    assert (first["input_length"], first["output_length"]) == (37, 9)
    assert len(first["hash_ids"]) == 3  # two full blocks and the partial one
    assert (second["input_length"], second["output_length"]) == (16, 3)
    assert len(second["hash_ids"]) == 1
    assert first["block_size"] == second["block_size"] == BLOCK_SIZE
    assert (first["timestamp"], second["timestamp"]) == (0.0, 1.25)


def test_ids_are_equal_exactly_where_prefixes_are(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record_all(
        path,
        [
            record_of(1, [1, 2, 3]),
            record_of(2, [1, 2, 4]),  # the same two blocks, then another
            record_of(3, [9, 2, 3]),  # the same contents behind another first block
        ],
    )
    first, second, third = (line["hash_ids"] for line in read(path))
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert not set(first) & set(third)


def test_a_partial_block_is_never_seen_twice(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record_all(path, [record_of(serial, [1], tail=4) for serial in range(1, 1001)])
    lines = read(path)
    assert len({line["hash_ids"][0] for line in lines}) == 1
    assert len({line["hash_ids"][1] for line in lines}) == 1000


def test_ids_are_exact_in_every_reader_of_json(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record_all(path, [record_of(1, range(5000))])
    ids = read(path)[0]["hash_ids"]
    assert len(set(ids)) == 5000
    assert all(0 <= i < 2**53 and i == int(float(i)) for i in ids)
    assert max(ids) > 2**52  # all bits are used


def test_another_run_has_other_ids(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path in paths:
        record_all(path, [record_of(1, range(100), tail=1)])
    one, two = (set(read(path)[0]["hash_ids"]) for path in paths)
    assert len(one) == len(two) == 101
    assert not one & two


def test_who_knows_the_prompt_cannot_find_its_ids(tmp_path: Path) -> None:
    """None of the ways to make 53 bits of a block hash without the secret gives
    the id, so a prompt cannot be looked for in a recording."""
    path = tmp_path / "trace.jsonl"
    record_all(path, [record_of(1, range(50))])
    ids = set(read(path)[0]["hash_ids"])
    mask = 2**53 - 1
    guesses = set()
    for block in hashes_of(*range(50)):
        for digest in (
            block,
            sha256(block).digest(),
            blake2b(block, digest_size=8).digest(),
            blake2b(block, digest_size=8, key=bytes(32)).digest(),
        ):
            for part in (digest[:8], digest[-8:]):
                for order in ("little", "big"):
                    number = int.from_bytes(part, order)
                    guesses |= {number >> 11, number & mask}
    assert not ids & guesses


def test_lines_come_in_order_of_admission(tmp_path: Path) -> None:
    """Whichever ends first: the one admitted first is written first."""
    path = tmp_path / "trace.jsonl"
    record_all(
        path,
        [
            record_of(3, tail=3, oldest_open=1),
            record_of(2, tail=2, oldest_open=1),
            record_of(1, tail=1, oldest_open=4),
            record_of(5, tail=5, oldest_open=4),
            record_of(4, tail=4, oldest_open=6),
        ],
    )
    assert [line["input_length"] for line in read(path)] == [1, 2, 3, 4, 5]


def test_the_clock_starts_with_the_first_line_and_never_runs_backwards_past_it(
    tmp_path: Path,
) -> None:
    """The front end's clock may be set back; no timestamp is negative."""
    path = tmp_path / "trace.jsonl"
    arrivals = [500.0, 499.0, 502.0]
    record_all(
        path,
        [record_of(i, arrival=arrival) for i, arrival in enumerate(arrivals, 1)],
    )
    assert [line["timestamp"] for line in read(path)] == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_the_suffix_chooses_the_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"trace{suffix}"
    record_all(path, [record_of(i, range(20)) for i in range(1, 200)])
    lines = read(path)
    assert len(lines) == 199
    plain = sum(len(str(line)) for line in lines)
    assert (os.path.getsize(path) < plain / 3) == (suffix != ".jsonl")
