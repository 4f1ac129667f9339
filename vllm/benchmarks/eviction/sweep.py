# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A curve for each policy: hit rate by capacity, replayed over several processes.

Curves are what was measured: they may cross, and may fall where a pool grows. Nothing
smooths them.
"""

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import numpy as np
from tqdm import tqdm

from vllm.benchmarks.eviction import grid
from vllm.benchmarks.eviction.policy_list import LabPolicy
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_shared import (
    TraceOwner,
    attach_for_life,
    attached_trace,
)


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
    highest = max(lowest, len(np.unique(trace.keys)))
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


def run_sweep(
    trace: Trace,
    capacities: Sequence[int],
    policies: Sequence[LabPolicy],
    window: float | None,
    workers: int,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row of measures as it is done, with its place.

    Args:
        trace: Requests.
        capacities: Blocks of the pool.
        policies: To compare.
        window: Of `adaptive`, seconds.
        workers: Processes; with 1 this one does the work.

    Yields:
        The place of the row, counted capacity by capacity, and the row.

    Raises:
        ValueError: One line, when a worker was killed.

    """
    width = len(policies)
    places = [
        i * width + j for i in coarse_first(len(capacities)) for j in range(width)
    ]
    jobs = [(at, capacities[at // width], policies[at % width]) for at in places]
    with tqdm(total=len(jobs), unit="replay", disable=None) as progress:
        done = (
            _in_this_process(trace, jobs, window)
            if workers == 1
            else _in_workers(trace, jobs, window, workers)
        )
        for place, row in done:
            progress.set_description(f"{row['policy']} at {row['capacity']:,}")
            progress.update()
            yield place, row


_Job = tuple[int, int, LabPolicy]
_Done = tuple[int, dict[str, Any]]


def _in_this_process(
    trace: Trace, jobs: Sequence[_Job], window: float | None
) -> Iterator[_Done]:
    for place, capacity, policy in jobs:
        result = grid.run_one(trace, capacity, policy, window)
        yield place, grid.make_row(capacity, policy, result)


def _in_workers(
    trace: Trace, jobs: Sequence[_Job], window: float | None, workers: int
) -> Iterator[_Done]:
    before = set(multiprocessing.active_children())
    with TraceOwner(trace) as shared:
        # Not forked: a fork of a process with threads may hang.
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)),
            multiprocessing.get_context("spawn"),
            attach_for_life,
            (shared,),
        )
        try:
            with _interrupt_ignored():
                futures: list[Future[_Done]] = [
                    pool.submit(_replay, job, window) for job in jobs
                ]
            for future in as_completed(futures):
                yield future.result()
            pool.shutdown()
        except BrokenProcessPool:
            raise ValueError(
                "a worker was ended from outside, perhaps for want of memory; "
                "fewer --workers take less."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            # A replay in work takes no notice of a shutdown.
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
                child.join()


def _replay(job: _Job, window: float | None) -> _Done:
    return next(_in_this_process(attached_trace(), [job], window))


@contextmanager
def _interrupt_ignored() -> Iterator[None]:
    """Let processes started meanwhile leave Ctrl-C to this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
