# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the benchmarks' command lines share. A fault is one line and exit status 2."""

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tqdm import tqdm

from vllm.benchmarks.eviction import workloads

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def fail(text: str) -> NoReturn:
    """Say what is wrong with the command, and end."""
    print(f"{Path(sys.argv[0]).name}: error: {text}", file=sys.stderr)
    raise SystemExit(2)


def make_parser(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring, as it is laid out."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


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


def run_all(
    run: Callable[[Task], Outcome], tasks: Sequence[Task], workers: int
) -> list[Outcome]:
    """Outcomes of all tasks, in their order; with a progress bar."""
    with ProcessPoolExecutor(workers) as pool:
        return list(tqdm(pool.map(run, tasks), total=len(tasks), disable=None))
