# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Replays a trace on the pool model, under one policy or under `adaptive`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from vllm._eviction_C import (
    HoleRule,
    ServiceModel,
    ShadowSet,
    Simulator,
    make_policy,
    unpinned_hits,
)

from vllm.benchmarks.eviction.cost_models import UNIFORM, CostModel
from vllm.benchmarks.eviction.trace import Trace
from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import get_policy, native_parameters
from vllm.v1.core.eviction.rules import (
    Counts,
    CountsSince,
    Decision,
    Rule,
    weighed,
)


@dataclass(frozen=True)
class Candidate:
    """A policy with its parameters.

    Attributes:
        name: A registered policy.
        config: As in `--eviction-config`.

    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)

    def native(self, holes: HoleRule | None = None) -> tuple[str, dict[str, float]]:
        """What the C++ core makes it from, for a pool that fills holes so."""
        return self.name, native_parameters(self.name, self.config, holes)


@dataclass
class Result:
    """Of one replay.

    Attributes:
        hit_rate: Prefix hits over full prompt blocks, 0 to 1.
        query_blocks: The denominator.
        hit_blocks: The numerator.
        requests: Admitted.
        refused: Larger than the pool.
        mean_wait: Seconds that a request waited for room.
        evictions: Blocks; None where nobody counts them.
        switches: (seconds, name) of each change of policy.
        decisions: Of the rule, under `adaptive`.
        query_tokens: Of all prompts.
        hit_tokens: Those of the hit blocks.
        ghost_hits: Queried blocks that had been evicted not long before.
        hits: uint32 (requests,); blocks that each request of the trace hit.
        saved: Cost of the hits in blocks at depth zero, where these are no prefixes.
        holes: Runs of full blocks that a request has to compute, where hits are no
            prefixes; what its end adds is one too.
        hole_blocks: Blocks in them.
        request_holes: uint32 (requests,); holes of each request of the trace.
        filled_holes: Those that have a hit behind them.
        filled_blocks: Blocks in those.

    """

    hit_rate: float
    query_blocks: int
    hit_blocks: int
    requests: int
    refused: int
    mean_wait: float
    evictions: int | None
    switches: list[tuple[float, str]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    query_tokens: int = 0
    hit_tokens: int = 0
    ghost_hits: int = 0
    hits: NDArray[np.uint32] = field(
        default_factory=lambda: np.zeros(0, np.uint32), compare=False, repr=False
    )
    saved: float | None = None
    holes: int | None = None
    hole_blocks: int | None = None
    request_holes: NDArray[np.uint32] | None = field(
        default=None, compare=False, repr=False
    )
    filled_holes: int | None = None
    filled_blocks: int | None = None


def replay(
    trace: Trace,
    num_blocks: int,
    policy: Candidate,
    service: ServiceModel | None = None,
    cost: CostModel = UNIFORM,
    holes: HoleRule | None = None,
) -> Result:
    """Replay under one policy throughout.

    Args:
        trace: Requests.
        num_blocks: Blocks of the pool.
        policy: The policy.
        service: Of time; the default is the one of the workloads.
        cost: Of a block, for policies that weigh it.
        holes: How the engine fills them, under a policy that leaves some.

    """
    simulator = _simulator(trace, num_blocks, policy, service, cost, holes)
    simulator.run_until(math.inf)
    return _result(simulator, holes is not None and _fills_holes(policy))


def learnt(
    trace: Trace,
    num_blocks: int,
    policy: Candidate,
    service: ServiceModel | None = None,
) -> dict[str, list[float]]:
    """What a policy has learnt by the end of a trace, as it tells it itself.

    Returns:
        Rows of numbers by name; empty for a policy that learns nothing.

    """
    simulator = _simulator(trace, num_blocks, policy, service, UNIFORM, None)
    simulator.run_until(math.inf)
    return simulator.report()


def replay_adaptive(
    trace: Trace,
    num_blocks: int,
    candidates: Sequence[Candidate],
    make_rule: Callable[[int, float], Rule],
    service: ServiceModel | None = None,
    cost: CostModel = UNIFORM,
    holes: HoleRule | None = None,
    objective: Literal["tokens", "compute"] = "tokens",
) -> Result:
    """Replay under `adaptive`; the first candidate is live at the start.

    Args:
        trace: Requests.
        num_blocks: Blocks of the pool.
        candidates: At least two.
        make_rule: Called with the number of candidates and the time.
        service: Of time; the default is the one of the workloads.
        cost: Of a block, for policies that weigh it.
        holes: How the engine fills them, under a policy that leaves some.
        objective: What the rule is told of: hit tokens, or the compute that they save.

    """
    start = float(trace.arrivals[0]) if len(trace) else 0.0
    rule = make_rule(len(candidates), start)
    simulator = _simulator(trace, num_blocks, candidates[0], service, cost, holes)
    natives = [candidate.native(holes) for candidate in candidates]
    shadows = ShadowSet(
        num_blocks,
        trace.block_size,
        natives,
        cost=cost.native(),
        holes=holes,
    )
    if trace.last_key:
        shadows.number_keys(trace.last_key)
    simulator.attach(shadows)
    since = CountsSince()
    window = _WindowReplay(trace, natives) if rule.reads_replay else None
    live = 0
    switches: list[tuple[float, str]] = []
    decisions = []
    while not simulator.done:
        now = rule.next_decision
        simulator.run_until(now)
        if simulator.done:
            break
        if window is not None:
            counts = window.counts(simulator.counts)
        else:
            counts = since.take(
                *weighed(
                    objective,
                    (shadows.query_tokens, shadows.hit_tokens),
                    (shadows.query_cost, shadows.saved),
                    trace.block_size,
                )
            )
        decision = rule.decide(now, live, counts)
        decisions.append(decision)
        if decision.choice != live:
            live = decision.choice
            simulator.hand_over(shadows, live)
            switches.append((now, candidates[live].name))
    result = _result(
        simulator, holes is not None and any(map(_fills_holes, candidates))
    )
    result.switches = switches
    result.decisions = decisions
    return result


class _WindowReplay:
    """What WAKMan counts at a boundary: a cold replay of the window's hashes."""

    def __init__(
        self, trace: Trace, candidates: Sequence[tuple[str, dict[str, float]]]
    ):
        self._trace = trace
        self._candidates = candidates
        self._blocks = trace.prompt_blocks
        self._requests = 0
        self._free_blocks = 0.0

    def counts(self, totals: dict[str, Any]) -> Counts:
        # Requests are admitted in order of arrival.
        first, last = self._requests, totals["requests"] + totals["refused"]
        if last == first:
            return Counts(0, (0,) * len(self._candidates))
        offsets = self._trace.offsets
        keys = np.concatenate(
            [
                self._trace.keys[offsets[i] : offsets[i] + self._blocks[i]]
                for i in range(first, last)
            ]
        )
        free = (totals["free_blocks"] - self._free_blocks) / (last - first)
        self._requests, self._free_blocks = last, totals["free_blocks"]
        hits = []
        for name, parameters in self._candidates:
            policy = make_policy(name, max(1, int(free)), parameters)
            hits.append(unpinned_hits(keys, policy))
        return Counts(len(keys), tuple(hits))


def sequential_result(
    trace: Trace, hits: NDArray[np.uint32], evictions: int | None
) -> Result:
    """The result of a replay without time: one request after the other.

    Args:
        trace: Requests.
        hits: Prompt blocks that each of them hit.
        evictions: Blocks; None where that is no number.

    """
    queries = int(trace.prompt_blocks.sum(dtype=np.int64))
    total = int(hits.sum(dtype=np.int64))
    return Result(
        hit_rate=total / queries if queries else 0.0,
        query_blocks=queries,
        hit_blocks=total,
        requests=len(trace),
        refused=0,
        mean_wait=0.0,
        evictions=evictions,
        query_tokens=int(trace.prompt_tokens.sum(dtype=np.int64)),
        hit_tokens=total * trace.block_size,
        hits=hits,
    )


def _simulator(
    trace: Trace,
    num_blocks: int,
    policy: Candidate,
    service: ServiceModel | None,
    cost: CostModel,
    holes: HoleRule | None,
) -> Simulator:
    parameters = parse_config(policy.name, policy.config, holes)
    return Simulator(
        trace.arrivals,
        trace.prompt_tokens,
        trace.output_tokens,
        trace.offsets,
        trace.keys,
        trace.block_size,
        get_policy(policy.name).make(num_blocks, parameters),
        service or ServiceModel(),
        cost.native(),
        last_key=trace.last_key,
        holes=holes,
    )


def _fills_holes(policy: Candidate) -> bool:
    return get_policy(policy.name).fills_holes


def _result(simulator: Simulator, with_holes: bool) -> Result:
    counts = simulator.counts
    queries = counts["query_blocks"]
    result = Result(
        hit_rate=counts["hit_blocks"] / queries if queries else 0.0,
        query_blocks=queries,
        hit_blocks=counts["hit_blocks"],
        requests=counts["requests"],
        refused=counts["refused"],
        mean_wait=counts["waited"] / max(1, counts["requests"]),
        evictions=simulator.evictions,
        query_tokens=counts["query_tokens"],
        hit_tokens=counts["hit_tokens"],
        ghost_hits=simulator.ghost_hits,
        hits=simulator.hits,
    )
    if with_holes:
        result.saved = counts["saved"]
        result.request_holes = simulator.holes
        result.holes = int(result.request_holes.sum(dtype=np.int64))
        result.hole_blocks = queries - result.hit_blocks
        result.filled_holes = counts["filled_holes"]
        result.filled_blocks = counts["filled_blocks"]
    return result
