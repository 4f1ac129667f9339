# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Replays of one trace, in this process or over several that share the trace."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

from tqdm import tqdm

from vllm.benchmarks.eviction import grid
from vllm.benchmarks.eviction.cost_models import UNIFORM, CostModel
from vllm.benchmarks.eviction.policy_list import LabPolicy
from vllm.benchmarks.eviction.ray_jobs import run_in_cluster
from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_shared import (
    TraceOwner,
    attach_for_life,
    attached_trace,
)


@dataclass(frozen=True)
class Job:
    """One replay.

    Attributes:
        capacity: Blocks of the pool.
        policy: Throughout.
        window: Of `adaptive`, seconds.
        cost: Of a block, for policies that weigh it.
        service: How fast the engine is.

    """

    capacity: int
    policy: LabPolicy
    window: float | None = None
    cost: CostModel = UNIFORM
    service: Service = Service()


def run_jobs(
    trace: Trace, jobs: Sequence[Job], workers: int | None, ray: str | None = None
) -> Iterator[tuple[int, Result]]:
    """Yield each result as it is done, with the place of its job; a bar moves on.

    Args:
        trace: Requests.
        jobs: In the order in which they are begun.
        workers: Processes; with 1 this one does the work. None takes all there are.
        ray: Address of a cluster that does it instead; see `ray_jobs`.

    Raises:
        ValueError: One line, when a worker was killed.

    """
    with tqdm(total=len(jobs), unit="replay", disable=None) as progress:
        if ray is not None:
            done = run_in_cluster(trace, jobs, workers, ray)
        elif workers == 1:
            done = _in_this_process(trace, jobs, progress)
        else:
            done = _in_workers(trace, jobs, workers or len(os.sched_getaffinity(0)))
        for place, result in done:
            progress.set_description(_label(jobs[place]))
            progress.update()
            yield place, result


def _label(job: Job) -> str:
    return f"{job.policy.label} at {job.capacity:,}"


def run(trace: Trace, job: Job) -> Result:
    """Do one."""
    return grid.run_one(
        trace, job.capacity, job.policy, job.window, job.cost, job.service
    )


def _in_this_process(
    trace: Trace, jobs: Sequence[Job], progress: "tqdm[None]"
) -> Iterator[tuple[int, Result]]:
    for place, job in enumerate(jobs):
        progress.set_description(_label(job))
        yield place, run(trace, job)


def _in_workers(
    trace: Trace, jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Result]]:
    before = set(multiprocessing.active_children())
    with TraceOwner(trace) as shared:
        # Not forked: a fork of a process with threads may hang.
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)),
            multiprocessing.get_context("spawn"),
            attach_for_life,
            (shared,),
        )
        futures: list[Future[tuple[int, Result]]] = []
        try:
            with _interrupt_ignored():
                for place, job in enumerate(jobs):
                    futures.append(pool.submit(_run_attached, place, job))
            for future in as_completed(futures):
                yield future.result()
            pool.shutdown()
        except BrokenProcessPool:
            raise ValueError(
                "a worker was ended from outside, perhaps for want of memory; "
                "fewer --workers take less."
            ) from None
        finally:
            for future in futures:
                future.cancel()
            # A replay in work takes no notice of a shutdown.
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            # Its thread waits for the processes: of two that wait for one process
            # only one is told that it has ended.
            pool.shutdown()


def _run_attached(place: int, job: Job) -> tuple[int, Result]:
    return place, run(attached_trace(), job)


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
