# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Replays a trace on vLLM's real scheduler and KV-cache manager, without a model.

It is how everything about hit rates is proven without a GPU: lookups, admission,
allocation, caching, preemption, release and the eviction hooks are the engine's own
code; only the model and the time are made up. A virtual clock stands in for the
scheduler's, and a request takes the time that the simulator's `ServiceModel` gives
it. Nothing is drawn and nothing depends on the machine's speed: same trace, same
result, to the block.

An hour of traffic takes about a minute, because four things are left out. None of
them changes what is measured, which is a function of the order in which blocks are
looked up, taken, filled and released:

- The model. The scheduler sees sampled tokens come in and asks for no more.
- Hashing. A request's block hashes are made from the trace's keys instead of from
  token ids (which are all zero), where equal keys mean equal prefixes as equal
  hashes do. The first eight bytes of a hash are the trace's key, so policies here
  and in the simulator see the same keys.
- Steps in which nothing happens to a block. In decoding a request takes a block
  when the first token of it is computed, and the block can be found when the last
  one is; in between a step changes a counter. So a request is scheduled at those
  tokens, at the very times at which vLLM would, and the tokens in between arrive
  together with them, as accepted draft tokens do. The token that is sampled last
  ends the request; as in vLLM it has no KV.
- Batching. A prompt is computed in one step, whatever its length, because the
  service-time model has no notion of a token budget. vLLM admits a request only
  when its whole prompt fits, and would take the blocks of its later chunks some
  tenths of a second later than here.

The output of a step comes when it is due rather than right after the step, as with
several batches in flight; the scheduler is made for that.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vllm._eviction_C import ServiceModel

from vllm.benchmarks.eviction.replay import Candidate, Result
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine
from vllm.v1.core.eviction import adaptive
from vllm.v1.core.eviction.rules import Counts, Decision, Rule


def run_static(
    trace: Trace,
    num_blocks: int,
    candidate: Candidate,
    service: ServiceModel | None = None,
    *,
    log_stats: bool = False,
) -> Result:
    """Replay under one policy throughout; `lru` is upstream's untouched queue.

    Args:
        trace: Requests, with a key for each full block of prompt and output.
        num_blocks: Blocks of the pool that can hold something; vLLM's null block
            comes on top.
        candidate: The policy.
        service: Of time; the default is the one of the workloads.
        log_stats: As of the engine; changes no result.

    """
    options = {"eviction_policy": candidate.name, "eviction_config": candidate.config}
    engine = VirtualEngine(trace, num_blocks, options, service, log_stats=log_stats)
    engine.run()
    return engine.result()


def run_adaptive(
    trace: Trace,
    num_blocks: int,
    candidates: Sequence[Candidate],
    make_rule: Callable[[int, float], Rule],
    service: ServiceModel | None = None,
    *,
    log_stats: bool = False,
) -> Result:
    """Replay under `adaptive`; the first candidate is live at the start.

    The shadows run in step with the scheduler, and a hand-over is done within one
    step: on a thread, their answers would come at times of the machine's choosing.

    Args:
        trace: See `run_static`.
        num_blocks: See `run_static`.
        candidates: At least two.
        make_rule: Called with the number of candidates and the time.
        service: See `run_static`.
        log_stats: See `run_static`.

    """
    config = {
        "candidates": [{"name": each.name, **each.config} for each in candidates],
        "threaded": False,
    }
    if make_rule(len(candidates), 0.0).reads_replay:
        config["rule"] = "paper"  # has the shadows keep what they need for it
    options = {"eviction_policy": "adaptive", "eviction_config": config}
    engine = VirtualEngine(trace, num_blocks, options, service, log_stats=log_stats)
    decisions: list[Decision] = []
    switches: list[tuple[float, str]] = []

    def make_recorded(num_candidates: int, now: float) -> Rule:
        rule = make_rule(num_candidates, now)
        decide = rule.decide

        def recorded(now: float, live: int, counts: Counts) -> Decision:
            decision = decide(now, live, counts)
            decisions.append(decision)
            if decision.choice != live:
                switches.append((now, candidates[decision.choice].name))
            return decision

        rule.decide = recorded  # type: ignore[method-assign]
        return rule

    with _rule_of(make_recorded):
        engine.run()
    result = engine.result()
    result.switches = switches
    result.decisions = decisions
    return result


@contextmanager
def _rule_of(make_rule: Callable[[int, float], Rule]) -> Iterator[None]:
    """Have the adaptive manager decide by this rule instead of a configured one."""
    configured = adaptive.make_rule
    adaptive.make_rule = (  # type: ignore[assignment]
        lambda _config, _window, num_candidates, now: make_rule(num_candidates, now)
    )
    try:
        yield
    finally:
        adaptive.make_rule = configured
