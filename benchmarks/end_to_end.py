# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Does a better hit rate become a better time to first token? On a real engine.

    python benchmarks/end_to_end.py --model models/SmolLM2-135M-Instruct \\
        --block-size 32 --max-model-len 2304 --enforce-eager --out results/

Two mixes of P1 and the drift from one to the other, under lru, s3fifo and adaptive,
three runs each, in turn; tables as of `benchmark_prefix_caching.py`.

What a laptop computes in a minute must be to its pool as the hour is to P1's pool. All
of that is settled before a time is looked at, by the simulator and one calibration:

- Lengths are multiplied by --scale-lengths, and with them the pool.
- Sessions are one in --thin, and with them the pool and the number of system prompts.
- The calibration measures what a request costs this engine: so much by itself, so much
  for each uncached token, of --at-once that run together.
- The simulator says how many tokens each static policy finds. --speed-up is set so that
  under the worse one the engine is busy for --load of the time; of a drift, in its
  heavier mix. As much of the traffic is replayed as fits into --seconds; of a drift,
  for each of its mixes.

Few tokens are generated (--output-len), because on a CPU the answers would take longer
than the prompts, and no policy changes that.

On a machine whose speed changes, --side-by-side runs lru and another at the same time,
each on half of the CPUs, and compares each pair.

--plan prints what would be run and what the simulator expects of it. On a GPU, with a
real model: --scale-lengths 1 --thin 1 --block-size 16.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from benchmark_prefix_caching import (
    check_lengths,
    engine_of,
    live_policies,
    model_of,
    times_of,
)
from command_line import (
    check_at_least_one,
    end_as_interrupted,
    fail,
    make_folder,
    make_parser,
)
from prefix_heats import add_side_by_side, check_side_by_side, run_all
from prefix_prompts import Ask, as_asked, asks_of_trace
from prefix_report import as_json, draw, write_table
from prefix_runs import EngineFailure, run_apart, run_side_by_side
from vllm._eviction_C import ServiceModel
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm.benchmarks.eviction.replay import Candidate, replay, replay_adaptive
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.workload import Mix, Schedule, Workload
from vllm.benchmarks.eviction.workloads import P1, constant, generate
from vllm.v1.core.eviction.adaptive_config import AdaptiveConfig, default_rule

AGENTS = Mix(0, 0, 100)
SINGLES = Mix(75, 25, 0)
SCENARIOS: dict[str, Callable[[float], Schedule]] = {
    "agents": lambda seconds: [(seconds, AGENTS)],
    "single turns": lambda seconds: [(seconds, SINGLES)],
    "drift": lambda seconds: [(seconds, AGENTS), (seconds, SINGLES)],
}
"""By --seconds, of traffic. Of P1's twenty mixes one that LRU wins by much, the one
that S3-FIFO wins by most (wakman_table.py), and both, one after the other."""

POLICIES = "lru,s3fifo,adaptive"
STATICS = ("lru", "s3fifo")
_LONG = 3600.0  # seconds of traffic by which the speed is chosen
_BEFORE = 900.0  # seconds of traffic that are not replayed
_OTHER_SEED = 1000  # of that traffic, which is not what is replayed


@dataclass(frozen=True)
class Cost:
    """Seconds that an engine is busy with a request, and with each uncached token."""

    request: float
    token: float

    def of(self, requests: float, tokens: float) -> float:
        """Seconds, together."""
        return self.request * requests + self.token * tokens


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes:
        name: Of `SCENARIOS`.
        trace: As the engine sees it.
        asks: The same.
        speed_up: Seconds of traffic in one.
        load: By policy, the share of the time that the engine is expected busy.
        hits: By policy, percent of prompt tokens that the simulator finds.

    """

    name: str
    trace: Trace
    asks: list[Ask]
    speed_up: float
    load: dict[str, float]
    hits: dict[str, float]


def small(scale: float, thin: float, block_size: int) -> Workload:
    """P1 with shorter prompts and fewer sessions."""
    workload = P1.workload.scaled(scale) if scale != 1 else P1.workload
    return replace(
        workload,
        block_size=block_size,
        rate=workload.rate / thin,
        services=max(1, round(workload.services / thin)),
        chat_prompts=max(1, round(workload.chat_prompts / thin)),
        agent_apps=max(1, round(workload.agent_apps / thin)),
    )


def steady(workload: Workload, schedule: Schedule, seed: int) -> Trace:
    """Traffic that has been going on for `_BEFORE`, which is left out.

    Chats last for minutes: at the start of a trace there are few, and all are short.
    """
    (seconds, first), *others = schedule
    drawn = generate(workload, [(_BEFORE + seconds, first), *others], seed)
    start = int(np.searchsorted(drawn.arrivals, _BEFORE))
    blocks = drawn.offsets[start]
    return replace(
        drawn,
        arrivals=drawn.arrivals[start:] - _BEFORE,
        prompt_tokens=drawn.prompt_tokens[start:],
        output_tokens=drawn.output_tokens[start:],
        offsets=drawn.offsets[start:] - blocks,
        keys=drawn.keys[blocks:],
        sessions=drawn.sessions[start:],
    )


def pool_blocks(scale: float, thin: float, block_size: int) -> int:
    """P1's pool, as much smaller."""
    tokens = P1.num_blocks * P1.workload.block_size * scale / thin
    return round(tokens / block_size)


def simulated(
    trace: Trace, pool: int, cost: Cost, speed_up: float
) -> dict[str, tuple[float, float]]:
    """Hit rate in percent of the prompts' tokens, as an engine counts it, and uncached
    tokens, by policy."""
    service = ServiceModel(
        base=cost.request * speed_up,
        prefill_rate=1 / (cost.token * speed_up),
        decode_seconds=0.0,
    )
    names = AdaptiveConfig().candidates
    candidates = [Candidate(name) for name in names]
    results = {name: replay(trace, pool, Candidate(name), service) for name in STATICS}
    results["adaptive"] = replay_adaptive(
        trace, pool, candidates, default_rule(names), service
    )
    tokens = int(trace.prompt_tokens.sum())
    found = {name: each.hit_blocks * trace.block_size for name, each in results.items()}
    return {
        name: (100 * hits / max(1, tokens), tokens - hits)
        for name, hits in found.items()
    }


def _busiest(trace: Trace, pool: int, cost: Cost, speed_up: float) -> float:
    """Seconds that the engine is busy with all of it, under the worse static policy."""
    found = simulated(trace, pool, cost, speed_up)
    return cost.of(len(trace), max(found[static][1] for static in STATICS))


def plan(args: argparse.Namespace, name: str, cost: Cost, vocabulary: int) -> Plan:
    """Choose the speed, and draw the requests."""
    workload = small(args.scale_lengths, args.thin, args.block_size)
    pool = pool_blocks(args.scale_lengths, args.thin, args.block_size)
    # A drift is as fast as its heaviest mix allows; that mix is not heavy by chance,
    # so this is asked of other traffic, and more of it.
    costs = []
    parts = SCENARIOS[name](1.0)
    seconds = args.seconds * len(parts)
    for share, mix in parts:
        long = steady(workload, constant(mix, _LONG), _OTHER_SEED)
        if not len(long):
            raise ValueError(f"--thin is {args.thin:g}: leaves no request in an hour.")
        costs.append(
            (share, _busiest(as_asked(long, args.output_len), pool, cost, 1.0))
        )
    heaviest = max(busy for _, busy in costs)
    target = args.load * sum(s * busy for s, busy in costs) / heaviest / len(costs)
    speed_up = args.load * _LONG / heaviest
    for _ in range(6):  # a faster replay takes in more of the traffic
        schedule = SCENARIOS[name](args.seconds * speed_up)
        drawn = steady(workload, schedule, args.traffic_seed)
        trace = as_asked(drawn, args.output_len)
        if not len(trace):
            raise ValueError("No request in so little traffic: take more of it.")
        busy = _busiest(trace, pool, cost, speed_up) / seconds
        speed_up *= math.sqrt(target / busy)
    speed_up /= math.sqrt(target / busy)
    found = simulated(trace, pool, cost, speed_up)
    return Plan(
        name,
        trace,
        asks_of_trace(drawn, vocabulary, speed_up, args.output_len),
        speed_up,
        {
            policy: cost.of(len(trace), uncached) / seconds
            for policy, (_, uncached) in found.items()
        },
        {policy: rate for policy, (rate, _) in found.items()},
    )


def calibrate(
    base: AsyncEngineArgs,
    vocabulary: int,
    output_len: int,
    at_once: int,
    side_by_side: bool,
) -> Cost:
    """Measure what requests of two lengths cost, none of them cached.

    Side by side, of each of two engines that do the same.

    Raises:
        EngineFailure: See `run_apart`.
        ValueError: What was measured does not grow with the length; one line.

    """
    rng = np.random.default_rng(0)
    low = min(1000, vocabulary // 2)
    # Batching makes steps cheaper.
    engine = replace(base, max_num_seqs=at_once, enable_prefix_caching=False)
    seconds = []
    lengths = (64, 512)
    for length in lengths:
        tokens = rng.integers(low, vocabulary, (20 * at_once, length), dtype=np.int32)
        asks = [Ask(0.0, row, output_len) for row in tokens]
        title = f"calibration, {length} tokens"
        if side_by_side:
            runs = run_side_by_side([engine] * 2, asks, [title] * 2)
        else:
            runs = [run_apart(engine, asks, title)]
        seconds.append(fmean(run.seconds for run in runs) / len(asks))
    token = (seconds[1] - seconds[0]) / (lengths[1] - lengths[0])
    if token <= 0:
        raise ValueError(
            f"The calibration found that {lengths[1]} tokens take no longer than "
            f"{lengths[0]}: measure again, or give --cost."
        )
    return Cost(max(0.0, seconds[0] - lengths[0] * token), token)


def describe(each: Plan, pool: int) -> str:
    """A paragraph of Markdown about a plan."""
    loads = ", ".join(f"{name} {100 * load:.0f} %" for name, load in each.load.items())
    hits = ", ".join(f"{name} {rate:.1f} %" for name, rate in each.hits.items())
    return (
        f"**{each.name}**: {len(each.asks):,} requests, "
        f"{int(each.trace.prompt_tokens.sum()):,} prompt tokens, pool of {pool:,} "
        f"blocks of {each.trace.block_size} tokens, {each.speed_up:.1f} times as fast. "
        f"The simulator expects hits of {hits}, and the engine busy for {loads}."
    )


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__, FlexibleArgumentParser)
    add: Callable[..., Any] = parser.add_argument
    add("--scale-lengths", type=float, default=0.125)
    add("--thin", type=float, default=4.0, metavar="N", help="one session in N")
    add("--seconds", type=float, default=70.0, help="that a mix takes")
    add("--load", type=float, default=0.8, help="see above")
    add("--output-len", type=int, default=4, help="tokens to generate at most")
    add("--traffic-seed", type=int, default=1)
    add("--runs", type=int, default=3, help="of each policy, in turn")
    add("--compare", default=POLICIES, metavar="POLICIES")
    add_side_by_side(parser)
    add("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    add(
        "--at-once",
        type=int,
        default=4,
        metavar="N",
        help="requests that the calibration runs together: as many as when the engine "
        "is busy (default: %(default)s)",
    )
    add("--cost", metavar="REQUEST,TOKEN", help="seconds; instead of calibrating")
    add("--plan", action="store_true", help="only print what would be run")
    add("--out", type=Path, help="folder for tables, figures and plots")
    AsyncEngineArgs.add_cli_args(parser)
    args: argparse.Namespace = parser.parse_args()
    for name in ("scale_lengths", "thin", "seconds", "load"):
        if not 0 < getattr(args, name) < float("inf"):
            flag = "--" + name.replace("_", "-")
            fail(f"{flag} is {getattr(args, name):g}: must be more than 0.")
    for name in ("output_len", "runs", "at_once"):
        check_at_least_one("--" + name.replace("_", "-"), getattr(args, name))
    if args.traffic_seed < 0:
        fail(f"--traffic-seed is {args.traffic_seed}: must be 0 or more.")
    for name in args.scenarios.split(","):
        if name not in SCENARIOS:
            fail(f"--scenarios has {name!r}: must be of {', '.join(SCENARIOS)}.")
    if args.block_size is None:
        args.block_size = 16
    make_folder("--out", args.out)
    return args


def cost_of(args: argparse.Namespace, base: AsyncEngineArgs, vocabulary: int) -> Cost:
    """What was given, or measured now.

    Raises:
        ValueError: What was given is no cost; one line.

    """
    if args.cost is None:
        return calibrate(
            base, vocabulary, args.output_len, args.at_once, args.side_by_side
        )
    try:
        request, token = (float(word) for word in args.cost.split(","))
        if not (0 <= request < math.inf and 0 < token < math.inf):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--cost is {args.cost!r}: must be seconds a request and seconds an "
            "uncached token, such as 0.01,0.0005."
        ) from None
    return Cost(request, token)


def main() -> int:
    end_as_interrupted()
    args = parse()
    status = 0
    try:
        pool = pool_blocks(args.scale_lengths, args.thin, args.block_size)
        policies = live_policies(args.compare)
        if args.side_by_side:
            check_side_by_side(len(policies))
        base = AsyncEngineArgs.from_cli_args(args)
        # One block is the engine's own.
        base = replace(base, num_gpu_blocks_override=pool + 1)
        model = model_of(base)
        cost = cost_of(args, base, model.get_vocab_size())
        given = f"--cost {cost.request:.5f},{cost.token:.7f}"
        print(
            f"A request costs {1000 * cost.request:.2f} ms and "
            f"{1e6 * cost.token:.0f} us an uncached token ({given})."
        )
        for name in args.scenarios.split(","):
            each = plan(args, name, cost, model.get_vocab_size())
            check_lengths(each.asks, base, model.max_model_len)
            print(f"\n{describe(each, pool)}\n", flush=True)
            if args.plan:
                continue
            engines = {
                policy.label: engine_of(base, policy, each.speed_up)
                for policy in policies
            }
            title = f"{each.name}, {each.speed_up:.1f} times as fast"
            if "adaptive" in engines:
                print(f"{times_of(engines['adaptive'])}.\n", flush=True)
            heats, status = run_all(engines, each.asks, args.runs, args.side_by_side)
            if heats:
                write_table(heats, sys.stdout)
                sys.stdout.flush()
            if heats and args.out is not None:
                stem = args.out / name.replace(" ", "-")
                figures = as_json(heats, {"plan": describe(each, pool)})
                stem.with_suffix(".json").write_text(json.dumps(figures, indent=1))
                draw(heats, stem.with_suffix(".png"), title)
            if status:
                return status
    except (ValueError, EngineFailure) as error:
        fail(" ".join(str(error).split()))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
