# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which engines run when: each by itself, in turn, or two at a time, side by side.

In turn an engine has the machine to itself, but a machine that others share is not as
fast in the next minute. Side by side the first policy and another each have half of the
CPUs in the same minute, and change halves in the next round: what is compared met the
same machine.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefix_prompts import Ask
from prefix_report import Heat
from prefix_runs import EngineFailure, run_apart, run_side_by_side

from vllm.benchmarks.eviction.cli import INTERRUPTED


def add_side_by_side(parser: Any) -> None:
    """Add the option that says which."""
    parser.add_argument(
        "--side-by-side",
        action="store_true",
        help="run the first policy and each other at the same time, each on half of "
        "the CPUs, instead of all in turn: for a machine whose speed changes",
    )


def check_side_by_side(num_policies: int) -> None:
    """Refuse where no two engines can run side by side.

    Raises:
        ValueError: One line.

    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        raise ValueError(
            f"--side-by-side: needs the CPU backend, and this is "
            f"{current_platform.device_name}: only CPUs are divided."
        )
    if num_policies < 2:
        raise ValueError("--side-by-side: needs two policies or more to --compare.")
    if len(os.sched_getaffinity(0)) < 2:
        raise ValueError("--side-by-side: needs two CPUs or more.")


def heats_of(
    labels: Sequence[str], rounds: int, side_by_side: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Title of each heat, and who runs in it."""
    first, *others = labels
    for i in range(rounds):
        title = f"run {i + 1} of {rounds}"
        if side_by_side:
            for other in others:
                pair = (first, other)
                yield title, pair if i % 2 == 0 else pair[::-1]
        else:
            # Who is first changes, so that what drifts meets all alike.
            start = i % len(labels)
            for label in (*labels[start:], *labels[:start]):
                yield title, (label,)


def run_all(
    engines: Mapping[str, Any],
    asks: list[Ask],
    rounds: int,
    side_by_side: bool = False,
) -> tuple[list[Heat], int]:
    """Run the same requests under all policies.

    Args:
        engines: `AsyncEngineArgs` of each policy's engine, by label.
        asks: In order of their times.
        rounds: Runs of each policy; side by side, of each pair.
        side_by_side: See above.

    Returns:
        The heats, as many as there are before a fault or an interrupt, and the status.

    """
    heats: list[Heat] = []
    status = 0
    try:
        for title, labels in heats_of(list(engines), rounds, side_by_side):
            if len(labels) == 1:
                (label,) = labels
                title = f"{title}, {label}"
                runs = [run_apart(engines[label], asks, title)]
            else:
                titles = [f"{title}, {label}" for label in labels]
                title = f"{title}, {' beside '.join(labels)}"
                runs = run_side_by_side(
                    [engines[each] for each in labels], asks, titles
                )
            heats.append(dict(zip(labels, runs, strict=True)))
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        status = INTERRUPTED
    except EngineFailure as error:
        # An hour of runs must not be lost with the last.
        print(f"{Path(sys.argv[0]).name}: error: {title}: {error}", file=sys.stderr)
        status = 2
    return heats, status
