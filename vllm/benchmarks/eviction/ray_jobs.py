# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Replays of one trace over a Ray cluster.

The trace goes once to each machine, into its object store, and the workers there read
it in place. A worker is an actor, which keeps what the oracles number of the trace. All
machines need this package.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.trace import Trace

if TYPE_CHECKING:
    from vllm.benchmarks.eviction.jobs import Job

LOCAL = "local"
"""As an address: a cluster of this machine alone, which ends with the work."""


def check_ray() -> None:
    """Fail before the work where there is no Ray.

    Raises:
        ValueError: One line.

    """
    import importlib.util

    if importlib.util.find_spec("ray") is None:
        raise ValueError("--ray needs ray: pip install -r requirements/bench.txt.")


class _Replayer:
    def __init__(self, trace: Trace):
        self._trace = trace

    def run(self, place: int, job: "Job") -> tuple[int, Result]:
        from vllm.benchmarks.eviction.jobs import run

        return place, run(self._trace, job)


def run_in_cluster(
    trace: Trace, jobs: Sequence["Job"], workers: int | None, address: str
) -> Iterator[tuple[int, Result]]:
    """Yield results as they are done, with the places of their jobs.

    Args:
        trace: Requests.
        jobs: In the order in which they are begun.
        workers: Actors, a processor each; None takes all that the cluster has.
        address: Of the cluster; "auto" takes RAY_ADDRESS or one of this machine's,
            "local" starts one.

    Raises:
        ValueError: One line, when there is no cluster, or a worker was lost.

    """
    # Nothing of this leaves the cluster.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    try:
        if not ray.is_initialized():
            local = address == LOCAL
            ray.init(
                address=address,
                num_cpus=workers if local else None,
                include_dashboard=False if local else None,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(f"--ray is {address}: no cluster there: {error}") from None
    actors: list[Any] = []
    try:
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        # A copy, without what the oracles have numbered here.
        shared = ray.put(replace(trace))
        kind = ray.remote(num_cpus=1)(_Replayer)
        actors = [kind.remote(shared) for _ in range(min(workers, len(jobs)))]
        waiting = iter(enumerate(jobs))
        running: dict[Any, Any] = {}
        for actor, (place, job) in zip(actors, waiting, strict=False):
            running[actor.run.remote(place, job)] = actor
        while running:
            [done], _ = ray.wait(list(running))
            actor = running.pop(done)
            result = ray.get(done)
            for place, job in waiting:
                running[actor.run.remote(place, job)] = actor
                break
            yield result
    except ray.exceptions.RayTaskError as error:
        raise ValueError(f"a worker failed: {error.cause}") from None
    except ray.exceptions.RayError as error:
        raise ValueError(f"a worker of the cluster was lost: {error}") from None
    finally:
        for actor in actors:
            ray.kill(actor)
        ray.shutdown()
