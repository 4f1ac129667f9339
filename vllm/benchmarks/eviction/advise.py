# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which policy a recorded day asks for, what is left to win, and what memory is worth.

Each policy is replayed once over the whole trace. A policy that is best all day is the
advice, and lru where none is told apart from it. Where the lead changes hands,
`adaptive` is replayed as well, with its default rule and with windows, and is the
advice when it is not behind the best policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm.benchmarks.eviction import advice_text
from vllm.benchmarks.eviction.advice_text import TOLD_APART, Finding
from vllm.benchmarks.eviction.cost_models import LINEAR, CostModel
from vllm.benchmarks.eviction.grid import longest_request, savings
from vllm.benchmarks.eviction.jobs import Job, run_jobs
from vllm.benchmarks.eviction.policy_list import LabPolicy
from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.slices import Slices, cut, stand
from vllm.benchmarks.eviction.trace import Trace
from vllm.v1.core.eviction.registry import MANAGER

_ORACLES = ("belady", "belady-compute", "infinite")
WINDOWS = (60.0, 300.0, 900.0)
"""Of `adaptive`, seconds; tried when none is asked for."""


@dataclass
class Advice:
    """What to use, and why.

    Attributes:
        policy: As in `--eviction-policy`, with the parameters replayed.
        window: As in `--eviction-window`, seconds.
        findings: Sentences with their figures.
        slices: Of the trace.
        hits: Of each policy replayed over all slices, blocks by slice.

    """

    policy: LabPolicy
    window: float | None
    findings: list[Finding]
    slices: Slices
    hits: dict[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all figures."""
        slices = self.slices
        return {
            "policy": self.policy.name,
            "config": self.policy.config,
            "window_s": self.window,
            "findings": [
                {"topic": each.topic, "text": each.text, "figures": each.figures}
                for each in self.findings
            ],
            "slice_s": slices.width,
            "slices": [
                {
                    "start_s": i * slices.width,
                    "requests": int(slices.requests[i]),
                    "prompt_blocks": int(slices.prompt_blocks[i]),
                    "hit_blocks": {name: hits[i] for name, hits in self.hits.items()},
                }
                for i in range(len(slices))
            ],
        }


def advise(
    trace: Trace,
    capacity: int,
    policies: Sequence[LabPolicy],
    windows: Sequence[float] = WINDOWS,
    width: float | None = None,
    workers: int | None = 1,
    cost: CostModel = LINEAR,
    service: Service = Service(),  # noqa: B008 - frozen
) -> Advice:
    """Replay and judge.

    Args:
        trace: With one request or more.
        capacity: Blocks of the pool.
        policies: The candidates; registered ones.
        windows: For `adaptive`, seconds, where the lead changes hands.
        width: Of the slices, seconds.
        workers: Processes.
        cost: Of a block; the default is the one that favours weighing it most.
        service: How fast the engine is.

    Raises:
        ValueError: One line.

    """
    slices = cut(trace, width)
    oracles = [LabPolicy(name, name, {}) for name in _ORACLES]
    jobs = [Job(capacity, each, None, cost, service) for each in [*policies, *oracles]]
    *found, belady, weighed, infinite = replay_all(trace, jobs, workers)
    statics = {p.label: each for p, each in zip(policies, found, strict=True)}
    standing = stand(slices, {name: each.hits for name, each in statics.items()})
    best = statics[standing.best]
    usual = statics.get("lru")
    if usual is not None and usual.hit_rate >= best.hit_rate - TOLD_APART:
        # What every engine does, where nothing is told apart from it.
        standing = replace(standing, best="lru")
        best = usual
    findings = [
        advice_text.leader(standing.best, statics),
        advice_text.by_slice(standing, slices),
    ]
    replayed = dict(statics)

    choice = next(job for job in jobs if job.policy.label == standing.best)
    chosen = best
    if len(policies) > 1:
        trades = standing.swing > TOLD_APART
        # Longer windows than a quarter of the trace have no time to show.
        lengths = [each for each in windows if 4 * each <= trace.arrivals[-1]]
        adaptive = LabPolicy(MANAGER, MANAGER, {"candidates": _candidates(policies)})
        variants = [
            Job(capacity, adaptive, window, cost, service)
            for window in [None, *(lengths if trades else [])]
        ]
        tried = replay_all(trace, variants, workers)
        replayed |= {_label(j): each for j, each in zip(variants, tried, strict=True)}
        winner = max(range(len(tried)), key=lambda i: tried[i].hit_rate)
        # A window must be worth its choice.
        if tried[winner].hit_rate <= tried[0].hit_rate + TOLD_APART:
            winner = 0
        if trades and tried[winner].hit_rate >= best.hit_rate - TOLD_APART:
            choice, chosen = variants[winner], tried[winner]
        rates = {
            job.window: each.hit_rate for job, each in zip(variants, tried, strict=True)
        }
        findings.append(
            advice_text.choice(standing, best, choice, rates, tried[winner])
        )
    findings.append(advice_text.headroom(choice, chosen, belady, infinite))
    saved = [savings(trace, each, cost) for each in (chosen, belady, weighed)]
    findings.append(advice_text.compute(choice, cost, *saved, weighed))

    _, needed = longest_request(trace)
    sizes = [size for size in (capacity // 2, 2 * capacity) if size >= needed]
    others = replay_all(
        trace, [replace(choice, capacity=size) for size in sizes], workers
    )
    findings.append(
        advice_text.memory(
            choice, chosen, dict(zip(sizes, others, strict=True)), needed
        )
    )
    if chosen.mean_wait > 1:
        findings.append(advice_text.waiting(chosen, service.max_running))
    replayed["belady"] = belady
    return Advice(
        choice.policy,
        choice.window,
        findings,
        slices,
        {name: slices.sums(each.hits).tolist() for name, each in replayed.items()},
    )


def replay_all(trace: Trace, jobs: Sequence[Job], workers: int | None) -> list[Result]:
    """Return the results in the order of the jobs."""
    found = dict(run_jobs(trace, jobs, workers)) if jobs else {}
    return [found[i] for i in range(len(jobs))]


def _label(job: Job) -> str:
    return job.policy.label if job.window is None else f"{MANAGER} {job.window:g} s"


def _candidates(policies: Sequence[LabPolicy]) -> list[Any]:
    return [{"name": each.name, **each.config} for each in policies]
