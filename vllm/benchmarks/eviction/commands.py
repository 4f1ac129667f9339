# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The commands of the lab, from arguments to tables.

What a command needs is imported when it runs, so that `--help` loads neither the C++
core nor numpy's and pandas' friends.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vllm.benchmarks.eviction.cli import INTERRUPTED
from vllm.benchmarks.eviction.policy_list import (
    ORACLES,
    PEERS,
    LabPolicy,
    candidates,
    parse_policies,
)
from vllm.v1.core.eviction.registry import get_policy, policy_names

MOST_BLOCKS = (1 << 32) - 2
"""Of a pool: the core counts in 32 bits, and one of the numbers means none."""


def print_fault(text: str) -> None:
    """Say what is wrong in one line."""
    print(f"vllm bench eviction: error: {' '.join(text.split())}", file=sys.stderr)


def _replay(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.grid import check_capacities
    from vllm.benchmarks.eviction.sweep import run_grid
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    capacities = _capacities(args.capacity)
    policies = parse_policies(args.policies, args.window)
    cost = _cost(args, policies)
    service = _service(args)
    check_outputs(args)
    trace = _load(args)
    check_capacities(trace, capacities)
    rows, status = _collect(
        run_grid(trace, capacities, policies, args.window, cost=cost, service=service),
        len(capacities) * len(policies),
    )
    write_table(rows, args, *_measures(rows, cost))
    return status


def _sweep(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.ray_jobs import check_ray
    from vllm.benchmarks.eviction.sweep import (
        coarse_first,
        run_grid,
        sweep_capacities,
    )
    from vllm.benchmarks.eviction.sweep_plot import check_plot, draw_sweep
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    workers = _workers(args)
    policies = parse_policies(args.policies, args.window)
    cost = _cost(args, policies)
    service = _service(args)
    check_outputs(args)
    check_plot(args.plot)
    if args.ray is not None:
        check_ray()
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
            cost,
            service,
            args.ray,
        ),
        len(capacities) * len(policies),
    )
    write_table(rows, args, *_measures(rows, cost))
    if args.plot and rows:
        name = Path(args.trace).name
        draw_sweep(rows, args.plot, f"{name}, blocks of {trace.block_size} tokens")
    return status


def _service(args: argparse.Namespace) -> Any:
    from vllm.benchmarks.eviction.service import Service

    return Service(
        args.base_seconds,
        args.prefill_rate,
        args.decode_seconds,
        args.max_running,
        args.hole_filling,
        args.prefill_budget,
        args.hole_step,
    )


def _cost(args: argparse.Namespace, policies: Sequence[LabPolicy]) -> Any:
    if measured := [each.label for each in policies if "cost_file" in each.config]:
        raise ValueError(
            f"--policies has {measured[0]!r}: cost_file is the engine's, here give "
            "--cost."
        )
    if args.cost is None:
        weighs = [each.label for each in policies if each.name == "belady-compute"]
        if weighs:
            raise ValueError("belady-compute needs --cost: what a block costs.")
        return None
    from vllm.benchmarks.eviction.cost_models import parse_cost

    return parse_cost(args.cost)


def _measures(rows: Sequence[dict[str, Any]], cost: Any) -> tuple[str, set[str]]:
    """What the table for people says of its units, and the columns it leaves out."""
    if not rows:
        return "", set()
    title = (
        f"block_hit_rate: over {rows[0]['prompt_blocks']:,} full prompt blocks; "
        f"token_hit_rate: over {rows[0]['prompt_tokens']:,} prompt tokens"
    )
    if cost is not None:
        title += (
            "; compute_savings: over the cost of all full prompt blocks "
            f"({cost.name}: 1 + {cost.per_token:.3g} a token of depth"
        )
        if cost.window:
            title += f" + {cost.per_window_token:.3g} up to {cost.window:,}"
        title += ")"
    return title, {
        "prompt_blocks",
        "prompt_tokens",
        "hit_tokens",
        "hole_blocks",
        "filled_holes",
        "compute_saved",
    }


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
        print_fault(f"after {len(rows)} of {total} replays: {error}")
        status = 2
    return [rows[number] for number in sorted(rows)], status


def _workers(args: argparse.Namespace) -> int | None:
    workers = args.workers
    if workers is not None and workers < 1:
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
    cost = _cost(args, policies)
    service = _service(args)
    width = None if args.slice is None else _seconds("--slice", str(args.slice))[0]
    check_outputs(args)
    trace = _load(args)
    check_capacities(trace, capacities)
    try:
        advice = advise(
            trace,
            capacities[0],
            policies,
            windows,
            width,
            workers,
            cost,
            service,
        )
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
    from vllm.benchmarks.eviction.sweep_plot import check_plot
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    check_outputs(args)
    check_plot(args.plot)
    trace = _load(args)
    write_table(describe(trace), args, args.trace)
    if args.plot:
        from vllm.benchmarks.eviction.describe_plot import draw_description

        name = Path(args.trace).name
        title = f"{name}, blocks of {trace.block_size} tokens"
        draw_description(trace, args.plot, title)
    return 0


def _learnt(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.grid import check_capacities
    from vllm.benchmarks.eviction.learnt_plot import AGE, draw_learnt
    from vllm.benchmarks.eviction.replay import Candidate, learnt
    from vllm.benchmarks.eviction.sweep_plot import check_plot
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    capacities = _capacities(args.capacity)
    if len(capacities) > 1:
        raise ValueError(f"--capacity is {args.capacity!r}: must be one number.")
    policies = parse_policies(args.policy)
    if len(policies) > 1:
        raise ValueError(f"--policy is {args.policy!r}: must be one policy.")
    (policy,) = policies
    check_outputs(args)
    check_plot(args.plot)
    trace = _load(args)
    check_capacities(trace, capacities)
    report = {}
    if policy.name in policy_names():
        report = learnt(trace, capacities[0], Candidate(policy.name, policy.config))
    if not report:
        raise ValueError(f"--policy {policy.label!r} learns nothing that it tells.")
    ages = report.pop(AGE)
    # Counts first: the hazards are named after what they are of.
    names = sorted(report, key=lambda name: ", " in name)
    rows = [
        {AGE: age, **{name: report[name][at] for name in names}}
        for at, age in enumerate(ages)
    ]
    left_out = {name for name in names if name.startswith("index")}
    write_table(rows, args, args.trace, left_out)
    if args.plot:
        title = f"{Path(args.trace).name}, {capacities[0]:,} blocks"
        draw_learnt({AGE: ages, **report}, args.plot, title)
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.calibrate_engine import calibrate_file

    try:
        calibrate_file(args)
    except KeyboardInterrupt:
        print("Interrupted: nothing is written.", file=sys.stderr)
        return INTERRUPTED
    return 0


def _policies(args: argparse.Namespace) -> int:
    from vllm.benchmarks.eviction.tables import check_outputs, write_table

    check_outputs(args)
    rows: list[dict[str, Any]] = []
    for name in policy_names(offline=True):
        spec = get_policy(name)
        rows.append(
            {
                "policy": name,
                "evicts_first": spec.summary,
                "parameters": json.dumps(_defaults(spec.config)),
                "ghosts": spec.ghosts,
                "shadow": spec.native and not spec.offline,
                "fills_holes": spec.fills_holes,
                "offline": spec.offline,
            }
        )
    for name, summary in (ORACLES | PEERS).items():
        rows.append(
            {
                "policy": name,
                "evicts_first": summary,
                "parameters": "{}",
                "ghosts": False,
                "shadow": False,
                "fills_holes": name in ("belady-compute", "ilp"),
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
    from vllm.benchmarks.eviction.tables import check_file
    from vllm.benchmarks.eviction.trace_write import (
        check_format,
        lines_of_trace,
        write_lines,
    )

    check_format(args.to)
    if args.output != "-":
        check_file("output", args.output)
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

    for flag in ("seconds", "sessions", "sessions_per_hour", "concurrency", "memory"):
        value = getattr(args, flag)
        if value is not None and not value > 0:
            name = flag.replace("_", "-")
            raise ValueError(f"--{name} is {value:g}: must be more than 0.")
    if args.memory == float("inf"):
        raise ValueError("--memory is inf: must be a number of GiB.")
    if args.seed < 0:
        raise ValueError(f"--seed is {args.seed}: must be 0 or more.")
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
            memory=int(args.memory * 2**30),
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
        if not word.strip().isdecimal() or not 0 < int(word) <= MOST_BLOCKS:
            raise ValueError(
                f"--capacity has {word.strip()!r}: must be whole numbers of blocks, "
                f"more than 0 and at most {MOST_BLOCKS:,}, separated by commas."
            )
        capacities.append(int(word))
    return list(dict.fromkeys(capacities))


COMMANDS = {
    "replay": _replay,
    "sweep": _sweep,
    "advise": _advise,
    "describe": _describe,
    "learnt": _learnt,
    "calibrate": _calibrate,
    "policies": _policies,
    "convert": _convert,
    "generate": _generate,
}
