# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the benchmarks' command lines share. A fault is one line and exit status 2, an
interrupt one line and 130."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tqdm import tqdm

from vllm.benchmarks.eviction import workloads
from vllm.benchmarks.eviction.cli import INTERRUPTED

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def fail(text: str) -> NoReturn:
    """Say what is wrong with the command, and end."""
    print(f"{Path(sys.argv[0]).name}: error: {text}", file=sys.stderr)
    raise SystemExit(2)


def make_parser(
    docstring: str | None,
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> Any:
    """A parser whose help is the script's docstring, as it is laid out.

    Args:
        docstring: The script's.
        kind: Of parser; vLLM's own where it takes the arguments of an engine.

    """
    parser = kind(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # Its own prints the usage before, which is pages where an engine has arguments.
    parser.error = fail  # type: ignore[assignment]
    return parser


def numbers(option: str, text: str, least: int = 1) -> list[int]:
    """Numbers separated by commas, ascending, each at least so much."""
    try:
        values = sorted({int(value) for value in text.split(",")})
    except ValueError:
        fail(f"{option} {text!r}: must be numbers, such as 4096,65536.")
    if values[0] < least:
        fail(f"{option} {text!r}: {values[0]} is too small, {least} is the least.")
    return values


def check_at_least_one(option: str, value: int) -> None:
    """Refuse zero and less."""
    if value < 1:
        fail(f"{option} {value}: must be at least 1.")


def end_as_interrupted() -> None:
    """Take a request to end (SIGTERM) for Ctrl-C: what is measured is written, and no
    engine is left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def check_seconds(option: str, value: float, least: float = 0.0) -> None:
    """Refuse what is no length of time, or a shorter one."""
    if not max(least, 1e-9) <= value < float("inf"):
        bound = f"at least {least:g}" if least else "more than 0"
        fail(f"{option} {value:g}: must be {bound} seconds.")


def make_folder(option: str, path: Path | None) -> None:
    """Make the folder of the results now: after the work is too late to fail."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(0, "cannot be written")
    except OSError as error:
        fail(f"{option} {path}: no folder to write to: {error.strerror}.")


def add_workload_args(parser: argparse.ArgumentParser) -> None:
    """Which synthetic traffic, replayed by how many processes."""
    add: Callable[..., Any] = parser.add_argument
    add("--preset", default="P1", help=", ".join(workloads.PRESETS))
    add("--seeds", type=int, default=3)
    add("--workers", type=int, default=2, help="processes")


def check_workload_args(args: argparse.Namespace) -> None:
    """Refuse what `add_workload_args` cannot mean."""
    if args.preset not in workloads.PRESETS:
        names = ", ".join(workloads.PRESETS)
        fail(f"--preset {args.preset!r}: must be one of {names}.")
    check_at_least_one("--seeds", args.seeds)
    check_at_least_one("--workers", args.workers)


def run_all(
    run: Callable[[Task], Outcome], tasks: Sequence[Task], workers: int
) -> list[Outcome]:
    """Outcomes of all tasks, in their order; with a progress bar."""
    with ProcessPoolExecutor(workers, initializer=_leave_interrupts) as pool:
        try:
            return list(tqdm(pool.map(run, tasks), total=len(tasks), disable=None))
        except KeyboardInterrupt:
            for process in list(pool._processes.values()):
                process.terminate()
            print("Interrupted.", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
