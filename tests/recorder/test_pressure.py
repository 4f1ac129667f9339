# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The scheduler never waits for the recorder, and memory is bounded."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.recording import BLOCK_SIZE, eventually, read, record_of
from vllm.v1.core.eviction import recorder as recorder_module
from vllm.v1.core.eviction.record_file import RecordFile
from vllm.v1.core.eviction.recorder import Recorder


class StuckDisk:
    """A disk whose writes do not come back before they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.reached = threading.Event()
        self.free = threading.Event()
        write = RecordFile.write

        def stuck(file: RecordFile, line: bytes) -> None:
            self.reached.set()
            self.free.wait()
            write(file, line)

        monkeypatch.setattr(RecordFile, "write", stuck)


@pytest.fixture
def stuck_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckDisk]:
    disk = StuckDisk(monkeypatch)
    yield disk
    disk.free.set()
    for thread in threading.enumerate():
        if thread.name == "eviction-recorder":
            thread.join(20)


def start(path: Path, **options: Any) -> Recorder:
    recorder = Recorder(str(path), BLOCK_SIZE, **options)
    if path.parent.exists():
        assert eventually(path.exists)
    return recorder


def outputs(path: Path) -> list[int]:
    return [line["output_length"] for line in read(path)]


def finish(recorder: Recorder, *serials: int, oldest_open: int | None = None) -> None:
    for serial in serials:
        recorder.finished(record_of(serial, output=serial, oldest_open=oldest_open))


def test_what_does_not_fit_is_left_out_with_one_warning(
    tmp_path: Path, stuck_disk: StuckDisk, warnings_logged: list[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = start(path, max_pending=10)
    finish(recorder, 1)
    assert stuck_disk.reached.wait(20)
    finish(recorder, *range(2, 101))  # returns although nothing is written
    assert recorder.dropped == 89
    (warning,) = warnings_logged
    assert "cannot keep up" in warning
    stuck_disk.free.set()
    recorder.close()
    assert outputs(path) == list(range(1, 12))
    assert "lacks 89 requests" in warnings_logged[-1]
    assert len(warnings_logged) == 2


def test_long_prompts_fill_the_queue_by_their_blocks(
    tmp_path: Path,
    stuck_disk: StuckDisk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_PENDING_BLOCKS", 1000)
    path = tmp_path / "trace.jsonl"
    recorder = start(path)
    finish(recorder, 1)
    assert stuck_disk.reached.wait(20)
    for serial in range(2, 12):
        recorder.finished(record_of(serial, range(300), output=serial))
    assert recorder.dropped == 7
    stuck_disk.free.set()
    # Room again. A request longer than the bound passes when it is alone.
    assert eventually(lambda: recorder._blocks_in == recorder._blocks_out)
    recorder.finished(record_of(12, range(2000), output=12))
    recorder.close()
    assert outputs(path) == [1, 2, 3, 4, 12]


def test_closing_gives_up_on_a_disk_that_hangs(
    tmp_path: Path,
    stuck_disk: StuckDisk,
    warnings_logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when the queue is full, so that not even the end fits in."""
    monkeypatch.setattr(recorder_module, "_CLOSING_TIME", 0.1)
    recorder = start(tmp_path / "trace.jsonl", max_pending=2)
    finish(recorder, 1)
    assert stuck_disk.reached.wait(20)
    finish(recorder, 2, 3)
    assert recorder._queue.full()
    recorder.close()
    assert any("lacks its end" in line for line in warnings_logged)


def test_closing_with_a_full_queue_writes_all_of_it(
    tmp_path: Path, stuck_disk: StuckDisk
) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = start(path, max_pending=5)
    finish(recorder, 1)
    assert stuck_disk.reached.wait(20)
    finish(recorder, *range(2, 7))
    assert recorder._queue.full()
    threading.Timer(0.2, stuck_disk.free.set).start()
    recorder.close()
    assert outputs(path) == list(range(1, 7))


def test_closing_twice_or_after_a_failure_is_no_fault(tmp_path: Path) -> None:
    recorder = start(tmp_path / "trace.jsonl")
    recorder.close()
    recorder.close()
    finish(recorder, 1)
    assert outputs(tmp_path / "trace.jsonl") == []
    failed = start(tmp_path / "missing" / "trace.jsonl")
    assert eventually(lambda: failed.failed)
    failed.close()
    assert not failed._thread.is_alive()


# ---- Requests that hold up those behind them. ----


def test_a_line_waits_for_the_requests_before_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = start(path)
    finish(recorder, 2, 3, oldest_open=1)
    assert eventually(lambda: len(recorder._waiting) == 2)
    assert path.stat().st_size == 0
    finish(recorder, 1, oldest_open=4)
    assert eventually(lambda: not recorder._waiting)
    assert outputs(path) == [1, 2, 3]  # before it is closed
    recorder.close()


def test_a_request_that_never_ends_holds_nothing_up_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = start(path, max_wait=0.0)
    finish(recorder, 3, oldest_open=1)
    assert eventually(lambda: path.stat().st_size > 0)
    finish(recorder, 2, 4, oldest_open=1)
    assert eventually(lambda: len(outputs(path)) == 3)
    finish(recorder, 1, oldest_open=5)  # it did end, and comes late
    recorder.close()
    assert sorted(outputs(path)) == [1, 2, 3, 4]
    assert outputs(path)[0] == 3 and outputs(path)[-1] == 1


def test_nor_does_it_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = start(path, max_pending=100)
    for serial in range(2, 1002):
        while recorder._queue.full():
            pass
        finish(recorder, serial, oldest_open=1)
    assert eventually(lambda: recorder._queue.empty())
    assert eventually(lambda: len(recorder._waiting) == 100)
    written = outputs(path)
    assert written == list(range(2, 902))
    recorder.close()
    assert outputs(path) == list(range(2, 1002))


def test_nor_do_the_blocks_of_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_PENDING_BLOCKS", 1000)
    path = tmp_path / "trace.jsonl"
    recorder = start(path)
    for serial in range(2, 22):
        recorder.finished(record_of(serial, range(100), output=serial, oldest_open=1))
        assert eventually(lambda: recorder._blocks_in == recorder._blocks_out)
    assert eventually(lambda: recorder._waiting_blocks <= 1000)
    assert recorder._waiting_blocks == 1000
    recorder.close()
    assert outputs(path) == list(range(2, 22))


def test_a_request_that_is_left_out_holds_nothing_up(
    tmp_path: Path, stuck_disk: StuckDisk
) -> None:
    """The record of 2 is lost. That it has ended is told by the next one."""
    path = tmp_path / "trace.jsonl"
    recorder = start(path, max_pending=1)
    finish(recorder, 1, oldest_open=2)
    assert stuck_disk.reached.wait(20)
    finish(recorder, 3, oldest_open=2)  # fills the queue
    finish(recorder, 2, oldest_open=4)
    assert recorder.dropped == 1
    stuck_disk.free.set()
    assert eventually(lambda: recorder._queue.empty() and len(recorder._waiting) == 1)
    finish(recorder, 4, oldest_open=5)
    assert eventually(lambda: not recorder._waiting)
    assert outputs(path) == [1, 3, 4]
    recorder.close()
