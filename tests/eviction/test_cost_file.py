# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A calibration's file: what was written is read, and what is damaged says why."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm.v1.core.eviction.cost_file import (
    Calibration,
    is_calibration,
    parse_calibration,
    read_calibration,
    write_calibration,
)
from vllm.v1.core.eviction.whole_file import replace_file

GOOD = Calibration(
    model="models/Some-1B",
    device="a device",
    dtype="bfloat16",
    block_size=16,
    date="2026-01-02T03:04:05+00:00",
    request_seconds=0.001,
    step_seconds=0.004,
    token_seconds=1e-5,
    per_token=1.5e-4,
    per_window_token=2e-5,
    window=4096,
    points=({"depth": 0, "tokens": 16, "steps": 1, "seconds": 0.005},),
)

seconds = st.floats(0.0, 1e12)


def test_a_step_in_tokens_and_in_blocks():
    assert GOOD.step_tokens == pytest.approx(400)
    assert GOOD.step_blocks == pytest.approx(25)
    assert GOOD.title == "Some-1B on a device"


@given(
    step=seconds,
    token=st.floats(1e-12, 1e12),
    per_token=seconds,
    window=st.integers(0, 2**31),
    text=st.text(),
)
def test_what_was_written_is_read(
    tmp_path_factory,
    step: float,
    token: float,
    per_token: float,
    window: int,
    text: str,
):
    path = str(tmp_path_factory.mktemp("costs") / "cost.json")
    calibration = replace(
        GOOD,
        model=text,
        step_seconds=step,
        token_seconds=token,
        per_token=per_token,
        window=window,
    )
    write_calibration(calibration, path)
    assert read_calibration(path) == calibration


def parsed() -> dict[str, Any]:
    return {"format": "vllm-eviction-cost", "version": 1} | vars(GOOD) | {"points": []}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "other"}, "it is no file of `vllm bench eviction calibrate`"),
        ({"version": 2}, "its version is 2, not 1"),
        ({"version": None}, "its version is None, not 1"),
        ({"model": None}, "its model is None"),
        ({"block_size": 0}, "its block_size is 0"),
        ({"block_size": 16.5}, "its block_size is 16.5"),
        ({"token_seconds": 0.0}, "its token_seconds is 0.0"),
        ({"token_seconds": True}, "its token_seconds is True"),
        ({"step_seconds": -1e-9}, "its step_seconds is -1e-09"),
        ({"step_seconds": float("nan")}, "its step_seconds is nan"),
        ({"per_token": float("inf")}, "its per_token is inf"),
        ({"per_token": "0.1"}, "its per_token is '0.1'"),
        ({"per_token": [0] * 1000}, "its per_token is [0, 0, 0, 0, 0, 0, ...]"),
        ({"window": 2**32}, "its window is 4294967296"),
        ({"points": None}, "its points is None"),
    ],
)
def test_what_is_damaged_says_why(change: dict[str, Any], why: str):
    assert parse_calibration(parsed()) == replace(GOOD, points=())
    with pytest.raises(ValueError) as error:
        parse_calibration(parsed() | change)
    assert str(error.value) == why


@pytest.mark.parametrize("other", [None, [], 3, "x", {}])
def test_other_json_is_none(other: Any):
    assert not is_calibration(other)
    with pytest.raises(ValueError, match="it is no file of"):
        parse_calibration(other)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "there is no such file"), (b"{", "Expecting"), (b"\xff", "decode")],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, why: str):
    path = tmp_path / "cost.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=why) as error:
        read_calibration(str(path))
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="directory"):
        read_calibration(str(tmp_path))


# ---- Replaced as a whole ----


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "cost.json"
    replace_file(path, "old")

    def full(fd: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["cost.json"]


def test_a_file_has_the_rights_of_any_new_file(tmp_path: Path):
    replace_file(tmp_path / "ours", "text")
    (tmp_path / "plain").write_text("text")
    modes = {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()}
    assert len(modes) == 1
