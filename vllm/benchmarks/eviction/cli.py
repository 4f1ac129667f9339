# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The command line of the lab: `vllm bench eviction`. What it does is `commands.py`.

A fault of the user's is one line and exit status 2; an interrupt keeps what is
computed, and its status is 130.
"""

import argparse
import os
import sys
from typing import Any, NoReturn

from vllm.benchmarks.eviction.generate_args import add_generate_args
from vllm.v1.core.eviction.adaptive_config import CANDIDATES
from vllm.v1.core.eviction.registry import MANAGER

INTERRUPTED = 130
"""Exit status, as a shell's after Ctrl-C."""


class _LabParser(argparse.ArgumentParser):
    """A command's. Can leave the words that it does not know, as `engine_words`, to the
    engine; else they are a fault, which is told without a page of usage before it."""

    leaves_words = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, words = super().parse_known_args(args, namespace)
        if self.leaves_words:
            found.engine_words, words = words, []
        elif words:
            self.error(f"unrecognized arguments: {' '.join(words)}")
        return found, words

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(2)


def add_cli_args(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser of `vllm bench eviction`."""
    # Upstream's parser class rewrites sys.argv's flags; a nested plain one does not.
    commands = parser.add_subparsers(
        dest="lab_command", required=True, parser_class=_LabParser
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
    sweep.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="replay over a Ray cluster, at this address, by default that of "
        "RAY_ADDRESS or of this machine; local starts one. --workers are its "
        "processors then (default: all)",
    )
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
        default=",".join(CANDIDATES),
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
    _add_cost_arg(advise, "linear")
    _add_service_args(advise)
    _add_workers_arg(advise)
    advise.add_argument("--json", metavar="PATH", help="- for standard output")

    describe = commands.add_parser("describe", help="what a trace is made of")
    _add_trace_args(describe)
    describe.add_argument("--plot", metavar="PATH", help="of .png, .pdf or .svg")
    _add_output_args(describe)

    learnt = commands.add_parser(
        "learnt", help="what a policy that learns has learnt by the end of a trace"
    )
    _add_trace_args(learnt)
    learnt.add_argument(
        "--capacity", required=True, metavar="BLOCKS", help="size of the pool in blocks"
    )
    learnt.add_argument("--policy", default="gittins", metavar="NAME")
    learnt.add_argument(
        "--plot",
        metavar="PATH",
        help="two files: .hazard and .index come before .png, .pdf or .svg",
    )
    _add_output_args(learnt)

    calibrate = commands.add_parser(
        "calibrate",
        help="measure on this device what prefill costs, for --cost and for the engine",
        description="Every argument of the engine can be given; vllm serve --help=all "
        "lists them.",
        allow_abbrev=False,
    )
    calibrate.leaves_words = True
    calibrate.add_argument("--model", required=True, metavar="MODEL")
    calibrate.add_argument(
        "--out",
        metavar="PATH",
        help="the file of costs (default: the model's name, .cost.json)",
    )
    calibrate.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="of each prompt; the median counts (default: %(default)s)",
    )
    _add_output_args(calibrate)

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
    parser.add_argument(
        "--memory",
        type=float,
        default=4.0,
        metavar="GIB",
        help="names of blocks beyond this, eight bytes each, go to a temporary file "
        "(default: %(default)s)",
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
        default=",".join((*CANDIDATES, MANAGER)),
        metavar="NAMES",
        help="separated by commas; parameters after a colon: s3fifo:promotion=2; "
        "offline only: session-lru, belady, belady-compute, ilp, ilp-prefix, infinite "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--window",
        type=float,
        metavar="SECONDS",
        help="of adaptive's rule `window`; without it adaptive discounts",
    )
    _add_cost_arg(parser)
    _add_service_args(parser)


def _add_cost_arg(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "--cost",
        default=default,
        metavar="MODEL",
        help="of a block, for the compute-savings ratio: uniform, linear, the "
        "config.json of a model, whose operations are counted, or a file of calibrate "
        "(default: %(default)s)",
    )


def _add_service_args(parser: argparse.ArgumentParser) -> None:
    engine = parser.add_argument_group(
        "the engine's speed",
        "A request holds its blocks for base + uncached prompt tokens / prefill rate + "
        "output tokens x decode seconds; those that find no room wait in order.",
    )
    for flag, kind, default, metavar, text in (
        ("--base-seconds", float, 0.2, "SECONDS", "that a request takes at least"),
        ("--prefill-rate", float, 8000.0, "RATE", "prompt tokens computed a second"),
        ("--decode-seconds", float, 0.02, "SECONDS", "of an output token"),
        ("--max-running", int, 64, "N", "requests at the same time"),
        ("--prefill-budget", int, 8192, "TOKENS", "that a step of prefill computes"),
    ):
        engine.add_argument(
            flag,
            type=kind,
            default=default,
            metavar=metavar,
            help=f"{text} (default: %(default)s)",
        )
    engine.add_argument(
        "--hole-step",
        type=float,
        metavar="TOKENS",
        help="at depth zero that a further step of prefill costs as much as (default: "
        "as measured, where --cost is a calibration, else 256)",
    )
    engine.add_argument(
        "--hole-filling",
        choices=("auto", "off"),
        default="auto",
        help="auto uses cached blocks behind missing ones under policies that leave "
        "holes (random-compute, partial-compute), where that saves more than the "
        "further steps of prefill cost (default: %(default)s)",
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
    from vllm.benchmarks.eviction.commands import COMMANDS, print_fault

    try:
        return COMMANDS[args.lab_command](args)
    except BrokenPipeError:
        # Who reads standard output has seen enough; Python must not write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print_fault(str(error))
    except MemoryError as error:
        print_fault(f"there is not so much memory: {error}")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    return 2
