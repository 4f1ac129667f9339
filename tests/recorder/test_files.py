# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The files on the disk: names, rights, rotation, and what a fault leaves."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.child_process import run_in_child
from tests.recorder.recording import (
    BLOCK_SIZE,
    eventually,
    read,
    record_all,
    record_of,
)
from vllm.v1.core.eviction import record_file
from vllm.v1.core.eviction.recorder import Recorder

SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst"]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_the_owner_may_read_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"trace{suffix}"
    before = os.umask(0)
    try:
        record_all(path, [record_of(1)] * 2, max_bytes=1)
    finally:
        os.umask(before)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_there_is_kept_under_another_name(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"trace{suffix}"
    record_all(path, [record_of(1, tail=1)])
    record_all(path, [record_of(1, tail=2)])
    stem, _, last = suffix.rpartition(".")
    older = tmp_path / f"trace{stem}.1.{last}"
    assert names(tmp_path) == sorted([path.name, older.name])
    assert [line["input_length"] for line in read(path)] == [2]
    assert [line["input_length"] for line in read(older)] == [1]


@pytest.mark.parametrize("suffix", [*SUFFIXES, ""])
def test_rotation_keeps_all_lines_in_order_and_no_file_too_long(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"trace{suffix}"
    record_all(
        path,
        [record_of(i, range(8), tail=1, output=i) for i in range(1, 31)],
        max_bytes=2000,
    )
    stem, dot, last = suffix.rpartition(".")
    files = [path] + [
        tmp_path / f"trace{stem}.{number}{dot}{last}" for number in range(1, 8)
    ]
    files = [file for file in files if file.exists()]
    assert names(tmp_path) == sorted(file.name for file in files)
    assert 3 < len(files) < 8
    lines = [line for file in reversed(files) for line in read(file)]
    assert [line["output_length"] for line in lines] == list(range(1, 31))
    # One recording: the same secret, and the clock goes on.
    assert len({tuple(line["hash_ids"][:-1]) for line in lines}) == 1
    assert [line["timestamp"] for line in lines] == [float(i) for i in range(30)]
    if suffix in ("", ".jsonl"):
        assert max(file.stat().st_size for file in files) <= 2000


def test_the_oldest_file_goes_when_there_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    many = record_file.KEPT_FILES + 5
    record_all(path, [record_of(i, output=i) for i in range(1, many + 1)], max_bytes=1)
    kept = record_file.KEPT_FILES
    assert names(tmp_path) == sorted(
        ["trace.jsonl", *(f"trace.{number}.jsonl" for number in range(1, kept + 1))]
    )
    for number in range(1, kept + 1):
        (line,) = read(tmp_path / f"trace.{number}.jsonl")
        assert line["output_length"] == many - number


def test_a_line_longer_than_a_file_may_be_gets_a_file_of_its_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.jsonl"
    record_all(
        path,
        [record_of(1), record_of(2, range(500)), record_of(3)],
        max_bytes=1000,
    )
    assert [len(read(tmp_path / name)[0]["hash_ids"]) for name in names(tmp_path)] == [
        500,
        0,
        0,
    ]  # trace.1.jsonl, trace.2.jsonl, trace.jsonl


# ---- What a fault leaves. ----


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_killed_process_leaves_a_sound_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server's engine is killed when the server ends."""
    monkeypatch.setattr(record_file, "_PIECE_SECONDS", 0.0)
    path = tmp_path / f"trace{suffix}"

    def record_and_die() -> None:
        recorder = Recorder(str(path), BLOCK_SIZE)
        for serial in range(1, 101):
            recorder.finished(record_of(serial, range(50), tail=3, output=serial))
        eventually(lambda: path.exists() and len(read(path)) == 100)
        os.kill(os.getpid(), signal.SIGKILL)

    run_in_child(record_and_die)
    assert [line["output_length"] for line in read(path)] == list(range(1, 101))


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_compressed_lines_come_in_pieces(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By time also when nothing comes any more, and by size."""
    monkeypatch.setattr(record_file, "_PIECE_SECONDS", 0.2)
    path = tmp_path / f"trace{suffix}"
    recorder = Recorder(str(path), BLOCK_SIZE)
    recorder.finished(record_of(1))
    assert eventually(lambda: path.exists() and len(read(path)) == 1)
    monkeypatch.setattr(record_file, "_PIECE_SECONDS", 3600.0)
    monkeypatch.setattr(record_file, "_PIECE_BYTES", 5000)
    for serial in range(2, 102):
        recorder.finished(record_of(serial))
    assert eventually(lambda: len(read(path)) > 50)
    recorder.close()
    assert len(read(path)) == 101


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_the_tools_of_the_shell_read_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"trace.jsonl{suffix}"
    tool = {".gz": "gzip", ".zst": "zstd"}[suffix]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    with record_file.RecordFile(path, 1 << 20) as file:
        for number in range(10):
            file.write(b"%d" % number)
            file._append()  # ten pieces
    done = subprocess.run([tool, "-dc", path], check=True, capture_output=True)
    assert done.stdout.split() == [b"%d" % number for number in range(10)]
    assert done.stderr == b""


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    """An engine inside a program of the user's is not always shut down."""
    program = (
        "import sys\n"
        "from tests.recorder.recording import record_of, BLOCK_SIZE\n"
        "from vllm.v1.core.eviction.recorder import Recorder\n"
        "recorders = [Recorder(path, BLOCK_SIZE) for path in sys.argv[1:]]\n"
        "for recorder in recorders:\n"
        "    for i in range(1, 101): recorder.finished(record_of(i, range(50)))\n"
    )
    paths = [tmp_path / f"trace{suffix}" for suffix in SUFFIXES]
    subprocess.run([sys.executable, "-c", program, *map(str, paths)], check=True)
    assert [len(read(path)) for path in paths] == [100, 100, 100]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_one_warning_and_leaves_a_sound_file(
    tmp_path: Path,
    suffix: str,
    warnings_logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_file, "_PIECE_SECONDS", 0.0)
    path = tmp_path / f"trace{suffix}"

    def record_on_a_full_disk() -> dict[str, Any]:
        # A limit on the size of files fails as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        recorder = Recorder(str(path), BLOCK_SIZE)
        for serial in range(1, 301):
            contents = range(serial * 100, serial * 100 + 100)
            recorder.finished(record_of(serial, contents))
        failed = eventually(lambda: recorder.failed)
        for serial in range(301, 1301):  # serving goes on
            recorder.finished(record_of(serial))
        recorder.close()
        return {
            "failed": failed,
            "kept": recorder._queue.qsize() + len(recorder._waiting),
            "warnings": warnings_logged,
        }

    outcome = run_in_child(record_on_a_full_disk)
    assert outcome["failed"]
    assert outcome["kept"] <= 1  # one may slip in while the thread ends
    (warning,) = outcome["warnings"]
    assert str(path) in warning and "Serving goes on" in warning
    assert "\n" not in warning
    assert 0 < len(read(path)) < 300
    assert path.stat().st_size <= 20_000


@pytest.mark.parametrize("case", ["no folder", "a folder", "a pipe", "a link"])
def test_a_path_that_cannot_be_written_is_one_warning(
    tmp_path: Path, case: str, warnings_logged: list[str]
) -> None:
    """And what stands there stays: never is a device renamed or a link followed."""
    path = tmp_path / "trace.jsonl"
    if case == "no folder":
        path = tmp_path / "missing" / "trace.jsonl"
    elif case == "a folder":
        path.mkdir()
    elif case == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "elsewhere")
    before = names(tmp_path)
    recorder = Recorder(str(path), BLOCK_SIZE)
    assert eventually(lambda: recorder.failed)
    for serial in range(1, 100):
        recorder.finished(record_of(serial))
    recorder.close()
    (warning,) = warnings_logged
    assert str(path) in warning and "Serving goes on" in warning
    assert recorder._queue.empty()
    assert names(tmp_path) == before
