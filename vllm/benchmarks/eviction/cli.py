# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The command line of the lab: `vllm bench eviction`.

What a command needs is imported when it runs, so that `--help` loads neither the
C++ core nor numpy's and pandas' friends. A fault of the user's is one line and exit
status 2; an interrupt keeps what is computed, and its status is 130.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm.benchmarks.eviction.generate_args import add_generate_args
from vllm.benchmarks.eviction.policy_list import ORACLES, candidates, parse_policies
from vllm.v1.core.eviction.registry import get_policy, policy_names

INTERRUPTED = 130
"""Exit status, as a shell's after Ctrl-C."""


def add_cli_args(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser of `vllm bench eviction`."""
    # Upstream's parser class rewrites sys.argv's flags; a nested plain one does not.
    commands = parser.add_subparsers(
        dest="lab_command", required=True, parser_class=argparse.ArgumentParser
    )
    replay = commands.add_parser(
        "replay", help="hit rates of policies at the capacities given"
    )
    _add_trace_args(replay)
    replay.add_argument(
        "--capacity",
        required=True,
        metavar="BLOCKS",
        help="sizes of the pool in blocks, separated by commas",
    )
    _add_policy_args(replay)
    _add_output_args(replay)

    sweep = commands.add_parser(
        "sweep",
        help="hit rates of policies over capacities from small to all",
        description="Capacities are evenly spaced in their logarithm, from the blocks "
        "that the longest request needs (prompt and output, its last block counted "
        "where it is not full) to the distinct full blocks of all prompts and outputs, "
        "rounded to whole blocks; equal ones are replayed once. The ends come first, "
        "then the middle, and so on, so that after Ctrl-C a coarse curve is left.",
    )
    _add_trace_args(sweep)
    sweep.add_argument(
        "--num-capacities",
        type=int,
        default=65,
        metavar="N",
        help="points of a curve (default: %(default)s)",
    )
    _add_policy_args(sweep)
    _add_workers_arg(sweep)
    sweep.add_argument("--plot", metavar="PATH", help="of .png, .pdf or .svg")
    _add_output_args(sweep)

    advise = commands.add_parser(
        "advise", help="in words: which policy, what is left to win, more memory"
    )
    _add_trace_args(advise)
    advise.add_argument(
        "--capacity", required=True, metavar="BLOCKS", help="size of the pool in blocks"
    )
    advise.add_argument(
        "--policies",
        default="lru,s3fifo,arc",
        metavar="NAMES",
        help="to choose from, adaptive among them or not (default: %(default)s)",
    )
    advise.add_argument(
        "--window",
        metavar="SECONDS",
        help="of adaptive, separated by commas, tried beside its default rule where "
        "policies trade places (default: 60,300,900)",
    )
    advise.add_argument(
        "--slice", type=float, metavar="SECONDS", help="(default: about 24 of them)"
    )
    _add_workers_arg(advise)
    advise.add_argument("--json", metavar="PATH", help="- for standard output")

    describe = commands.add_parser("describe", help="what a trace is made of")
    _add_trace_args(describe)
    _add_output_args(describe)

    policies = commands.add_parser("policies", help="the policies there are")
    _add_output_args(policies)

    convert = commands.add_parser("convert", help="write a trace in another format")
    _add_trace_args(convert)
    convert.add_argument("output", help="the file; .gz and .zst compress, - prints")
    convert.add_argument(
        "--to",
        default="recording",
        metavar="FORMAT",
        help="mooncake, mooncake-runs, bailian or recording (default: %(default)s)",
    )

    generate = commands.add_parser("generate", help="write synthetic traffic")
    add_generate_args(generate)


def _add_trace_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", help="the file; .gz and .zst are unpacked")
    parser.add_argument(
        "--block-size",
        type=int,
        metavar="TOKENS",
        help="must divide the file's, which is the default",
    )
    parser.add_argument(
        "--format", metavar="NAME", help="by default the first line tells"
    )
    parser.add_argument(
        "--bad-lines",
        choices=("fatal", "skip"),
        default="fatal",
        help="what to do with a line that cannot be understood (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, help="leave out what comes later than this"
    )
    drawn = parser.add_argument_group("traces of sessions, whose starts are drawn")
    drawn.add_argument("--sessions", type=int, help="how many to take (default: all)")
    drawn.add_argument(
        "--sessions-per-hour",
        type=float,
        default=40.0,
        help="Poisson starts (default: %(default)s)",
    )
    drawn.add_argument(
        "--concurrency", type=int, help="instead: this many sessions at any time"
    )
    drawn.add_argument("--seed", type=int, default=1)


def _add_policy_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policies",
        default="lru,s3fifo,arc,adaptive",
        metavar="NAMES",
        help="separated by commas; parameters after a colon: s3fifo:promotion=2; "
        "offline only: belady, infinite (default: %(default)s)",
    )
    parser.add_argument(
        "--window",
        type=float,
        metavar="SECONDS",
        help="of adaptive's rule `window`; without it adaptive discounts",
    )


def _add_workers_arg(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes, which share the trace (default: one for each core)",
    )


def _add_output_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="PATH", help="- for standard output")
    parser.add_argument("--csv", metavar="PATH", help="- for standard output")
    parser.add_argument("--parquet", metavar="PATH")


def run(words: list[str]) -> int:
    """Run `vllm bench eviction` with these words, without the rest of the CLI.

    Returns:
        The exit status, as `main`.

    """
    parser = argparse.ArgumentParser(prog="vllm bench eviction")
    add_cli_args(parser)
    return main(parser.parse_args(words))


def main(args: argparse.Namespace) -> int:
    """Run a command.

    Returns:
        The exit status: 0, 2 after a fault of the user's, 130 after an interrupt.

    """
    try:
        return _COMMANDS[args.lab_command](args)
    except (ValueError, OSError) as error:
        _print_fault(str(error))
        return 2


def _print_fault(text: str) -> None:
    print(f"vllm bench eviction: error: {' '.join(text.split())}", file=sys.stderr)


def _replay(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.grid import check_capacities
    from vllm.benchmarks.eviction.sweep import run_grid
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    capacities = _capacities(args.capacity)
    policies = parse_policies(args.policies, args.window)
    check_outputs(args)
    trace = _load(args)
    check_capacities(trace, capacities)
    rows, status = _collect(
        run_grid(trace, capacities, policies, args.window),
        len(capacities) * len(policies),
    )
    write_table(rows, args, _HIT_RATE)
    return status


def _sweep(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.sweep import (
        coarse_first,
        run_grid,
        sweep_capacities,
    )
    from vllm.benchmarks.eviction.sweep_plot import check_plot, draw_sweep
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    workers = _workers(args)
    policies = parse_policies(args.policies, args.window)
    check_outputs(args)
    check_plot(args.plot)
    trace = _load(args)
    capacities = sweep_capacities(trace, args.num_capacities)
    rows, status = _collect(
        run_grid(
            trace,
            capacities,
            policies,
            args.window,
            workers,
            coarse_first(len(capacities)),
        ),
        len(capacities) * len(policies),
    )
    write_table(rows, args, _HIT_RATE)
    if args.plot and rows:
        name = Path(args.trace).name
        draw_sweep(rows, args.plot, f"{name}, blocks of {trace.block_size} tokens")
    return status


_HIT_RATE = "hit_rate: hit_blocks over prompt_blocks, the full blocks of all prompts"


def _collect(
    numbered: Iterator[tuple[int, dict[str, Any]]], total: int
) -> tuple[list[dict[str, Any]], int]:
    """Rows by number, as many as there are before a fault or an interrupt."""
    rows: dict[int, dict[str, Any]] = {}
    status = 0
    try:
        for number, row in numbered:
            rows[number] = row
    except KeyboardInterrupt:
        print(f"Interrupted after {len(rows)} of {total} replays.", file=sys.stderr)
        status = INTERRUPTED
    except ValueError as error:
        _print_fault(f"after {len(rows)} of {total} replays: {error}")
        status = 2
    return [rows[number] for number in sorted(rows)], status


def _workers(args: argparse.Namespace) -> int:
    workers = args.workers
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    if workers < 1:
        raise ValueError(f"--workers is {workers}: must be 1 or more.")
    return workers


def _advise(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.advise import WINDOWS, advise
    from vllm.benchmarks.eviction.grid import check_capacities
    from vllm.benchmarks.eviction.tables import check_outputs, write_advice

    capacities = _capacities(args.capacity)
    if len(capacities) > 1:
        raise ValueError(f"--capacity is {args.capacity}: advise takes one.")
    workers = _workers(args)
    policies = candidates(args.policies)
    windows = WINDOWS if args.window is None else _seconds("--window", args.window)
    width = None if args.slice is None else _seconds("--slice", str(args.slice))[0]
    check_outputs(args)
    trace = _load(args)
    check_capacities(trace, capacities)
    try:
        advice = advise(trace, capacities[0], policies, windows, width, workers)
    except KeyboardInterrupt:
        print("Interrupted: no advice without all replays.", file=sys.stderr)
        return INTERRUPTED
    write_advice(
        advice,
        {
            "trace": args.trace,
            "capacity": capacities[0],
            "block_size": trace.block_size,
        },
        args.json,
    )
    return 0


def _seconds(flag: str, text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(0 < each < float("inf") for each in found):
        raise ValueError(f"{flag} is {text}: must be seconds, more than 0.")
    return list(dict.fromkeys(found))


def _describe(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.describe import describe
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    check_outputs(args)
    write_table(describe(_load(args)), args, args.trace)
    return 0


def _policies(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    check_outputs(args)
    rows: list[dict[str, Any]] = []
    for name in policy_names():
        spec = get_policy(name)
        rows.append(
            {
                "policy": name,
                "evicts_first": spec.summary,
                "parameters": json.dumps(_defaults(spec.config)),
                "ghosts": spec.ghosts,
                "shadow": spec.native,
                "offline": False,
            }
        )
    for name, summary in ORACLES.items():
        rows.append(
            {
                "policy": name,
                "evicts_first": summary,
                "parameters": "{}",
                "ghosts": False,
                "shadow": False,
                "offline": True,
            }
        )
    write_table(rows, args, "Policies")
    return 0


def _defaults(config: type) -> dict[str, Any]:
    from dataclasses import MISSING, fields

    return {
        field.name: None if field.default is MISSING else field.default
        for field in fields(config)
    }


def _convert(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.trace_write import (
        check_format,
        lines_of_trace,
        write_lines,
    )

    trace = _load(args)
    check_format(args.to, trace.block_size)
    write_lines(lines_of_trace(trace), args.output, args.to, trace.block_size)
    print(f"{len(trace):,} requests to {args.output}", file=sys.stderr)
    return 0


def _generate(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.generate import generate_file

    return generate_file(args)


def _load(args: argparse.Namespace) -> Any:
    from vllm.benchmarks.eviction.trace_load import Reading, load_trace

    for flag in ("seconds", "sessions", "sessions_per_hour", "concurrency"):
        value = getattr(args, flag)
        if value is not None and not value > 0:
            name = flag.replace("_", "-")
            raise ValueError(f"--{name} is {value:g}: must be more than 0.")
    loaded = load_trace(
        args.trace,
        Reading(
            block_size=args.block_size,
            format=args.format,
            skip_bad_lines=args.bad_lines == "skip",
            seconds=args.seconds,
            sessions=args.sessions,
            sessions_per_hour=args.sessions_per_hour,
            concurrency=args.concurrency,
            seed=args.seed,
        ),
    )
    if loaded.bad_lines:
        print(
            f"{len(loaded.bad_lines)} lines skipped; the first: {loaded.bad_lines[0]}",
            file=sys.stderr,
        )
    trace = loaded.trace
    print(
        f"{args.trace}: {loaded.format}, {len(trace):,} requests, "
        f"{int(trace.prompt_blocks.sum()):,} prompt blocks of "
        f"{trace.block_size} tokens.",
        file=sys.stderr,
    )
    return trace


def _capacities(text: str) -> list[int]:
    capacities = []
    for word in text.split(","):
        if not word.strip().isdecimal() or int(word) == 0:
            raise ValueError(
                f"--capacity has {word.strip()!r}: must be whole numbers of blocks, "
                "more than 0, separated by commas."
            )
        capacities.append(int(word))
    return list(dict.fromkeys(capacities))


_COMMANDS = {
    "replay": _replay,
    "sweep": _sweep,
    "advise": _advise,
    "describe": _describe,
    "policies": _policies,
    "convert": _convert,
    "generate": _generate,
}
