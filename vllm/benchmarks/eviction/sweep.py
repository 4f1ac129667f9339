# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A curve for each policy: hit rate by capacity, replayed over several processes.

Curves are what was measured: they may cross, and may fall where a pool grows. Nothing
smooths them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vllm.benchmarks.eviction import grid
from vllm.benchmarks.eviction.cost_models import UNIFORM, CostModel
from vllm.benchmarks.eviction.jobs import Job, run_jobs
from vllm.benchmarks.eviction.policy_list import LabPolicy
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.trace import Trace


def sweep_capacities(trace: Trace, number: int) -> list[int]:
    """Space capacities evenly in their logarithm.

    From the blocks that the longest request needs to the distinct full blocks of all
    prompts and outputs, rounded to whole blocks; equal ones are kept once.

    Args:
        trace: With one request or more.
        number: At least 2.

    Raises:
        ValueError: One line.

    """
    if number < 2:
        raise ValueError(f"--num-capacities is {number}: must be 2 or more.")
    _, lowest = grid.longest_request(trace)
    highest = max(lowest, trace.distinct_blocks())
    spaced = np.geomspace(lowest, highest, number).round().astype(np.int64)
    return np.unique(spaced).tolist()


def coarse_first(number: int) -> list[int]:
    """Order 0 to number - 1 so that any beginning is spread over the whole.

    The ends come first, then the middle, then the middles of the halves.
    """
    if number == 0:
        return []
    order = {0: None, number - 1: None}
    parts = 1
    while len(order) < number:
        parts *= 2
        order |= {(number - 1) * i // parts: None for i in range(parts)}
    return list(order)


def run_grid(
    trace: Trace,
    capacities: Sequence[int],
    policies: Sequence[LabPolicy],
    window: float | None = None,
    workers: int | None = 1,
    order: Sequence[int] | None = None,
    cost: CostModel | None = None,
    service: Service = Service(),  # noqa: B008 - frozen
    ray: str | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row of measures as it is done, with its place.

    Args:
        trace: Requests.
        capacities: Blocks of the pool.
        policies: To compare.
        window: Of `adaptive`, seconds.
        workers: Processes; with 1 this one does the work. None takes all there are.
        order: Places of the capacities in the order of their replays.
        cost: Of a block, for the compute-savings ratio; without, there is none.
        service: How fast the engine is.
        ray: Address of a cluster that does the work; see `ray_jobs`.

    Yields:
        The place of the row, counted capacity by capacity, and the row.

    Raises:
        ValueError: One line, when a worker was killed.

    """
    width = len(policies)
    places = [
        i * width + j for i in order or range(len(capacities)) for j in range(width)
    ]
    jobs = [
        Job(
            capacities[at // width],
            policies[at % width],
            window,
            cost or UNIFORM,
            service,
        )
        for at in places
    ]
    for number, result in run_jobs(trace, jobs, workers, ray):
        job = jobs[number]
        yield (
            places[number],
            grid.make_row(trace, job.capacity, job.policy, result, cost),
        )
