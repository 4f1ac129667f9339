# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm bench eviction generate`: synthetic traffic into a file of a public format.

The same traffic as the benchmarks' own, from the same generator. Written as it is
drawn: the memory that it takes does not grow with the hours.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator

from tqdm import tqdm

from vllm.benchmarks.eviction.generate_args import check_fits, schedule_of, workload_of
from vllm.benchmarks.eviction.sessions import Request, stream, stream_concurrent
from vllm.benchmarks.eviction.tables import check_file
from vllm.benchmarks.eviction.trace_write import (
    check_format,
    lines_of_requests,
    write_lines,
)
from vllm.benchmarks.eviction.workload import Workload


def requests_of(args: argparse.Namespace) -> tuple[Workload, Iterable[Request], float]:
    """The parameters, the requests, and how much of them there is.

    Returns:
        The third is in seconds of traffic; in sessions with `--concurrency`.

    Raises:
        ValueError: One line.

    """
    preset, workload = workload_of(args)
    schedule = schedule_of(args, preset)
    check_fits(workload, schedule)
    if args.seed < 0:
        raise ValueError(f"--seed is {args.seed}: must be 0 or more.")
    if args.concurrency is None:
        for name in ("sessions", "comparable_up_to"):
            if getattr(args, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} needs --concurrency.")
        seconds = sum(each for each, _ in schedule)
        return workload, stream(workload, schedule, args.seed), seconds
    if args.sessions is None:
        raise ValueError("--concurrency needs --sessions: how many there are in all.")
    if len(schedule) > 1 or args.seconds is not None or args.rate is not None:
        raise ValueError(
            "--concurrency goes with one mix, and without --seconds and --rate: "
            "sessions start when others end."
        )
    for name in ("concurrency", "sessions"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} is {getattr(args, name)}: must be 1 or more.")
    highest = args.comparable_up_to
    if highest is not None and highest < args.concurrency:
        raise ValueError(
            f"--comparable-up-to is {highest}: must be at least --concurrency, "
            f"{args.concurrency}."
        )
    drawn = stream_concurrent(
        workload,
        schedule[0][1],
        args.sessions,
        args.concurrency,
        highest,
        args.seed,
    )
    return workload, drawn, args.sessions


def generate_file(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    workload, requests, amount = requests_of(args)
    check_format(args.format, workload.block_size)
    if args.output != "-":
        check_file("output", args.output)
    by_session = args.concurrency is not None
    shown = _shown(requests, amount, by_session)
    lines = lines_of_requests(shown, workload.block_size)
    count = write_lines(lines, args.output, args.format, workload.block_size)
    print(f"{count:,} requests to {args.output}", file=sys.stderr)
    return 0


def _shown(
    requests: Iterable[Request], amount: float, by_session: bool
) -> Iterator[Request]:
    """The same with a progress bar, of seconds or of sessions."""
    unit = "sessions" if by_session else "s of traffic"
    with tqdm(total=round(amount), unit=unit, disable=None) as bar:
        for request in requests:
            at = request.session.number if by_session else request.arrival
            if at > bar.n + 1:
                bar.update(int(at) - bar.n)
            yield request
