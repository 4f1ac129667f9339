# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The options of `vllm bench eviction generate`, and what they ask for.

Every parameter of a workload is an option, made from the fields of `Workload`; what
is not given is the preset's. Nothing here draws, or needs what drawing needs.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import NoReturn

from vllm.benchmarks.eviction.workload import Mix, Preset, Schedule, Workload
from vllm.benchmarks.eviction.workloads import (
    DRIFT_SECONDS,
    LETTERS,
    PRESETS,
    drift,
    preset_named,
)

HOUR = 3600.0


def add_generate_args(parser: argparse.ArgumentParser) -> None:
    """Add the options of `generate`, in groups."""
    # Dozens of options: a usage line of all would be a page.
    parser.usage = "%(prog)s OUTPUT [--preset NAME] [options]; --help lists them"
    parser.add_argument("output", help="the file; .gz and .zst compress, - prints")
    parser.add_argument(
        "--format",
        default="mooncake",
        metavar="NAME",
        help="mooncake, mooncake-runs, bailian or recording (default: %(default)s)",
    )
    add_traffic_args(parser)


def add_traffic_args(parser: argparse.ArgumentParser) -> None:
    """Which traffic: preset, mix, schedule, and every parameter."""
    presets = "; ".join(f"{name}: {each.summary}" for name, each in PRESETS.items())
    parser.add_argument("--preset", default="P1", help=f"{presets} (default: P1)")
    parser.add_argument(
        "--shares",
        action="append",
        metavar="SINGLE,CHAT,AGENT",
        help="percent of requests, sum 100; given again, the mix of the next --segment",
    )
    letters = ", ".join(f"{letter} {mix}" for letter, mix in LETTERS.items())
    parser.add_argument(
        "--drift",
        metavar="LETTERS",
        help=f"a mix a --segment, such as ASASAS: {letters}",
    )
    parser.add_argument(
        "--segment",
        type=float,
        metavar="SECONDS",
        help=f"how long a mix of a drift lasts (default: {DRIFT_SECONDS:g})",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="of traffic; a drift repeats (default: 3600, or the drift once)",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        help="instead of --rate: so many of the --sessions at any time",
    )
    parser.add_argument("--sessions", type=int, help="how many, with --concurrency")
    parser.add_argument(
        "--comparable-up-to",
        type=int,
        metavar="CONCURRENCY",
        help="the same requests for every --concurrency up to this one",
    )
    parser.add_argument(
        "--scale-lengths",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="multiplies all lengths; do the same to the pool",
    )
    parser.add_argument("--seed", type=int, default=1)
    group = parser.add_argument_group("parameters (default: the preset's)")
    for each in fields(Workload):
        group.add_argument(
            "--" + each.name.replace("_", "-"),
            type=each.type,  # type: ignore[arg-type]
            metavar="N" if each.type is int else "X",
            help=each.metadata["help"],
        )


def workload_of(args: argparse.Namespace) -> tuple[Preset, Workload]:
    """The preset and the parameters that the arguments ask for.

    Raises:
        ValueError: One line.

    """
    preset = preset_named(args.preset)
    if not 0 < args.scale_lengths < float("inf"):
        raise ValueError(
            f"--scale-lengths is {args.scale_lengths:g}: must be more than 0."
        )
    given = {
        each.name: getattr(args, each.name)
        for each in fields(Workload)
        if getattr(args, each.name) is not None
    }
    try:
        workload = replace(preset.workload, **given)
    except ValueError as error:
        raise _of_flag(error) from None
    # By exactly one, floats would stay the same; the parameters given are unscaled.
    scale = args.scale_lengths
    try:
        return preset, workload.scaled(scale) if scale != 1.0 else workload
    except ValueError as error:
        raise ValueError(f"--scale-lengths is {scale:g}: then {error}") from None


def check_fits(workload: Workload, schedule: Schedule) -> None:
    """Refuse mixes of which hardly anything fits into `--max-tokens`.

    Raises:
        ValueError: One line.

    """
    try:
        for _, mix in schedule:
            workload.check_fits(mix)
    except ValueError as error:
        raise _of_flag(error) from None


def _of_flag(error: ValueError) -> ValueError:
    """What a workload says of a parameter, said of its flag."""
    name, space, rest = str(error).partition(" ")
    return ValueError(f"--{name.replace('_', '-')}{space}{rest}")


def schedule_of(args: argparse.Namespace, preset: Preset) -> Schedule:
    """How long each mix lasts.

    Raises:
        ValueError: One line.

    """
    for name in ("seconds", "segment"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"--{name} is {value:g}: must be more than 0 seconds.")
    if args.drift is not None and args.shares:
        raise ValueError("--drift and --shares: each says the mix, give one of them.")
    segment = args.segment or DRIFT_SECONDS
    if args.drift == "":
        raise ValueError("--drift is empty: must be letters, such as ASASAS.")
    if args.drift is not None:
        pattern = drift(args.drift, segment)
    else:
        mixes = [parse_shares(each) for each in args.shares or []] or [preset.mix]
        if len(mixes) == 1:
            if args.segment is not None:
                raise ValueError("--segment needs --drift or several --shares.")
            return [(args.seconds or HOUR, mixes[0])]
        pattern = [(segment, mix) for mix in mixes]
    if args.seconds is None:
        return pattern
    return list(_repeated(pattern, args.seconds))


def parse_shares(text: str) -> Mix:
    """A mix, as typed.

    Raises:
        ValueError: One line.

    """
    try:
        single, chat, agent = (float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(
            f"--shares is {text!r}: must be three percentages, single-turn, chat and "
            "agent, such as 40,30,30."
        ) from None
    try:
        return Mix(single, chat, agent)
    except ValueError:
        raise ValueError(
            f"--shares {text} sum to {single + chat + agent:g}: must be 0 or more, and "
            "sum to 100."
        ) from None


def _repeated(pattern: Schedule, seconds: float) -> Iterator[tuple[float, Mix]]:
    left = seconds
    while left > 0:
        for length, mix in pattern:
            if left <= 0:
                return
            yield min(length, left), mix
            left -= length


def _one_line(message: str) -> NoReturn:
    print(f"vllm bench eviction generate: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def parse_traffic(words: Sequence[str]) -> argparse.Namespace:
    """Read traffic options that another command was given as one text."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.error = _one_line  # type: ignore[method-assign,assignment]
    add_traffic_args(parser)
    return parser.parse_args(words)
