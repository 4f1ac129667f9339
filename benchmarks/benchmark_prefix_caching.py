# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What prefix caching saves on an engine with a model: time to first token, prefill.

Prompts that are all there at the start, with lengths drawn or from a file:

    python benchmarks/benchmark_prefix_caching.py --model MODEL --num-prompts 20 \\
        --repeat-count 5 --input-length-range 128:256 --prefix-len 100

Or a workload, each request at its time, under several eviction policies:

    python benchmarks/benchmark_prefix_caching.py --model MODEL --workload P1 \\
        --compare lru,s3fifo,adaptive --runs 3 --plot ttft.png

A workload is a preset of `vllm bench eviction generate`, whose other options go into
--traffic ('shares=0,100,0 seconds=600'), or a trace in a format that the lab reads.
Each policy has an engine in a process of its own, one after the other; with --runs they
take turns. On a machine whose speed changes from minute to minute, --side-by-side runs
two at the same time. Every argument of the engine can be given.

With --speed-up F a second of the workload takes 1/F s, and so do the times of
`adaptive`: half-life, interval, first window and --eviction-window are given in seconds
of the workload.
"""

import json
import os
import sys
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # an engine logs a page

from command_line import (
    check_at_least_one,
    end_as_interrupted,
    fail,
    make_parser,
)
from prefix_heats import add_side_by_side, check_side_by_side, run_all
from prefix_prompts import Ask, Batch, asks_of_trace, load_workload
from prefix_report import as_json, draw, write_table
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm.benchmarks.eviction.policy_list import LabPolicy, parse_policies
from vllm.benchmarks.eviction.sweep_plot import check_plot
from vllm.benchmarks.eviction.tables import check_file
from vllm.v1.core.eviction.adaptive_config import AdaptiveConfig
from vllm.v1.core.eviction.config import validate_eviction
from vllm.v1.core.eviction.registry import MANAGER

_TIMES = ("half_life", "interval", "first_window")  # of adaptive, seconds


def parser_of_all() -> Any:
    parser = make_parser(__doc__, FlexibleArgumentParser)
    batch = parser.add_argument_group("prompts that are all there at the start")
    batch.add_argument("--num-prompts", type=int, help="different ones")
    batch.add_argument("--repeat-count", type=int, default=1, help="of each prompt")
    batch.add_argument(
        "--input-length-range", default="128:256", metavar="MIN:MAX", help="tokens"
    )
    batch.add_argument(
        "--prefix-len", type=int, default=0, help="tokens that all prompts begin with"
    )
    batch.add_argument(
        "--dataset-path", type=Path, help="conversations as in ShareGPT's JSON"
    )
    batch.add_argument("--sort", action="store_true", help="by length; else shuffled")
    timed = parser.add_argument_group("a workload, each request at its time")
    timed.add_argument("--workload", metavar="PRESET|TRACE")
    timed.add_argument(
        "--traffic",
        default="",
        metavar="'NAME=VALUE ...'",
        help="options of `vllm bench eviction generate`, without the dashes, such as "
        "'shares=0,100,0 scale-lengths=0.1'",
    )
    timed.add_argument(
        "--workload-seconds", type=float, help="leave out what comes later"
    )
    timed.add_argument("--speed-up", type=float, default=1.0, metavar="FACTOR")
    parser.add_argument(
        "--output-len",
        type=int,
        help="tokens to generate (default: 10; of a workload: its own, this at most)",
    )
    parser.add_argument(
        "--compare",
        metavar="POLICIES",
        help="such as lru,s3fifo:promotion=2,adaptive (default: --eviction-policy)",
    )
    parser.add_argument("--runs", type=int, default=1, help="of each policy, in turn")
    add_side_by_side(parser)
    parser.add_argument("--json", type=Path, help="all figures of all runs")
    parser.add_argument("--plot", type=Path, help="of .png, .pdf or .svg")
    return AsyncEngineArgs.add_cli_args(parser)


@dataclass(frozen=True)
class Setting:
    """All that is asked for, checked.

    Attributes:
        title: Of the prompts.
        asks: In order of their times.
        engines: Arguments of each policy's engine, by label.
        times: What became of adaptive's times; empty without it.

    """

    title: str
    asks: list[Ask]
    engines: dict[str, AsyncEngineArgs]
    times: str


def setting_of(args: Namespace) -> Setting:
    """Check the arguments and make the prompts.

    Raises:
        ValueError: One line.

    """
    if args.json is not None:
        check_file("--json", args.json)
    check_plot(args.plot)
    for name in ("speed_up", "workload_seconds"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is {value:g}: must be more than 0.")
    if (args.workload is None) == (args.num_prompts is None):
        raise ValueError(
            "Give --workload, or --num-prompts: which of the two kinds of prompts?"
        )
    if args.workload is None:
        for flag, given in (
            ("--speed-up", args.speed_up != 1),
            ("--traffic", args.traffic),
            ("--workload-seconds", args.workload_seconds is not None),
        ):
            if given:
                raise ValueError(f"{flag} needs --workload: nothing else has times.")
    base = AsyncEngineArgs.from_cli_args(args)
    engines = {
        policy.label: engine_of(base, policy, args.speed_up)
        for policy in policies_of(args)
    }
    if args.side_by_side:
        check_side_by_side(len(engines))
    scaled = [each for each in engines.values() if each.eviction_policy == MANAGER]
    model = model_of(base)
    vocabulary, longest = model.get_vocab_size(), model.max_model_len
    if args.workload is not None:
        trace, title = load_workload(
            args.workload, args.traffic.split(), args.workload_seconds
        )
        asks = asks_of_trace(trace, vocabulary, args.speed_up, args.output_len)
        title += f", {len(asks):,} requests, {args.speed_up:g} times as fast"
    else:
        batch = batch_of(args)
        title = f"{batch.num_prompts} prompts {batch.repeat_count} times"
        if args.dataset_path is None:
            asks = batch.drawn(vocabulary)
        else:
            asks = batch.read(args.dataset_path, tokenizer_of(base))
    check_lengths(asks, base, longest)
    return Setting(title, asks, engines, times_of(scaled[0]) if scaled else "")


def batch_of(args: Namespace) -> Batch:
    """The prompts that are all there at the start.

    Raises:
        ValueError: One line.

    """
    try:
        low, high = (int(word) for word in args.input_length_range.split(":"))
    except ValueError:
        raise ValueError(
            f"--input-length-range is {args.input_length_range!r}: must be MIN:MAX, "
            "such as 128:256."
        ) from None
    if not 0 < low <= high:
        raise ValueError(
            f"--input-length-range is {low}:{high}: must be 1 or more, the least first."
        )
    if not 0 <= args.prefix_len < low:
        raise ValueError(
            f"--prefix-len is {args.prefix_len}: must be 0 or more, and less than the "
            f"shortest prompt, {low}."
        )
    for name in ("num_prompts", "repeat_count"):
        check_at_least_one("--" + name.replace("_", "-"), getattr(args, name))
    return Batch(
        args.num_prompts,
        args.repeat_count,
        (low, high),
        args.prefix_len,
        args.output_len or 10,
        args.sort,
        args.seed or 0,
    )


def live_policies(text: str, window: float | None = None) -> list[LabPolicy]:
    """Read --compare.

    Raises:
        ValueError: One line.

    """
    policies = parse_policies(text, window)
    for each in policies:
        if each.offline:
            raise ValueError(
                f"--compare has {each.label!r}: no engine has it, only the lab."
            )
    return policies


def policies_of(args: Namespace) -> list[LabPolicy]:
    """The policies to compare.

    Raises:
        ValueError: One line.

    """
    chosen, config = args.eviction_policy, dict(args.eviction_config or {})
    if args.compare is None:
        return [LabPolicy(chosen, chosen, config)]
    window = args.eviction_window
    policies = []
    for each in live_policies(args.compare, window):
        if each.name == chosen:  # what --eviction-config says is about this one
            each = replace(each, config={**config, **each.config})
        policies.append(each)
    if window is not None and MANAGER not in [each.name for each in policies]:
        raise ValueError(f"--eviction-window is {window:g}: needs {MANAGER}.")
    return policies


def engine_of(
    base: AsyncEngineArgs, policy: LabPolicy, speed_up: float
) -> AsyncEngineArgs:
    """Arguments of a policy's engine, with its times as fast as the workload.

    Raises:
        ValueError: The policy has no such parameters; one line.

    """
    config, window = dict(policy.config), None
    if policy.name == MANAGER:
        window = base.eviction_window
        if speed_up != 1:
            defaults = AdaptiveConfig()
            for name in _TIMES:
                config[name] = config.get(name, getattr(defaults, name)) / speed_up
            window = None if window is None else window / speed_up
    validate_eviction(policy.name, config, window)
    return replace(
        base,
        eviction_policy=policy.name,
        eviction_config=config,
        eviction_window=window,
        enable_log_requests=False,
    )


def times_of(engine: AsyncEngineArgs) -> str:
    """Adaptive's times as they are in force, seconds."""
    config = AdaptiveConfig(**engine.eviction_config)
    parts = [f"{name} {getattr(config, name):.3g} s" for name in _TIMES]
    if engine.eviction_window is not None:
        parts.append(f"window {engine.eviction_window:.3g} s")
    return f"{MANAGER}: {', '.join(parts)}"


def model_of(base: AsyncEngineArgs) -> Any:
    """The model's config.

    Raises:
        ValueError: There is no such model, or it cannot be used; one line.

    """
    try:
        return base.create_model_config()
    except Exception as error:
        raise ValueError(f"--model {base.model}: {_first_line(error)}") from None


def tokenizer_of(base: AsyncEngineArgs) -> Any:
    """The model's tokenizer.

    Raises:
        ValueError: There is none; one line.

    """
    from vllm.tokenizers import get_tokenizer

    name = base.tokenizer or base.model
    try:
        return get_tokenizer(name)
    except Exception as error:
        raise ValueError(f"--tokenizer {name}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
    return reason


def check_lengths(asks: list[Ask], base: AsyncEngineArgs, longest: int) -> None:
    """Refuse what the model or the pool cannot hold.

    Raises:
        ValueError: One line.

    """
    if not asks:
        raise ValueError("No request in so little traffic: take more of it.")
    for i, ask in enumerate(asks):
        total = len(ask.tokens) + ask.output
        if total > longest:
            raise ValueError(
                f"Request {i} has {len(ask.tokens):,} tokens and asks for "
                f"{ask.output:,}: {base.model} takes {longest:,}. Shorten them, such "
                "as by --traffic scale-lengths=0.1 or --input-length-range."
            )
    blocks = base.num_gpu_blocks_override
    if blocks is not None and base.block_size is not None:
        room = (blocks - 1) * base.block_size  # one is the engine's own
        most = max(len(ask.tokens) + ask.output for ask in asks)
        if most > room:
            raise ValueError(
                f"--num-gpu-blocks-override is {blocks}: holds {room:,} tokens, and a "
                f"request has {most:,}."
            )


def main() -> int:
    end_as_interrupted()
    args = parser_of_all().parse_args()
    check_at_least_one("--runs", args.runs)
    if args.output_len is not None:
        check_at_least_one("--output-len", args.output_len)
    try:
        setting = setting_of(args)
    except ValueError as error:
        fail(" ".join(str(error).split()))
    prompt_tokens = sum(len(ask.tokens) for ask in setting.asks)
    print(f"{setting.title}; {prompt_tokens:,} prompt tokens, {args.model}.")
    if setting.times:
        print(f"{setting.times}.")
    heats, status = run_all(setting.engines, setting.asks, args.runs, args.side_by_side)
    if not heats:
        return status
    print()
    write_table(heats, sys.stdout)
    if args.json is not None:
        described = {
            "prompts": setting.title,
            "model": args.model,
            "speed_up": args.speed_up,
            "adaptive": setting.times,
            "block_size": args.block_size,
            "num_gpu_blocks_override": args.num_gpu_blocks_override,
        }
        args.json.write_text(json.dumps(as_json(heats, described), indent=1) + "\n")
    if args.plot is not None:
        draw(heats, args.plot, setting.title)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
