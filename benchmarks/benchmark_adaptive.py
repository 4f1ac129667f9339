# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What does `adaptive` cost: the scheduler, the shadows, a decision, a change?

    python benchmarks/benchmark_adaptive.py
    python benchmarks/benchmark_adaptive.py --parts shadows,changes --json

Three parts, each over sizes of pools and, where it matters, lengths of prompts:

    scheduler  time of vLLM's real scheduler under `adaptive` (--candidates, the
               shadows on their own thread) over that under `lru`; both replay the same
               traffic and take turns in one process, the ratio is the median over the
               turns. And what a decision takes at most on the scheduler's thread.
    shadows    per block of a prompt and candidate on the shadows' thread, in steady
               state; and bytes per block of the pool.
    changes    the longest slice of a change of policy, with every block of the pool
               free and cached; how many slices, and seconds until the plan was there.

On a busy machine compare the ratios, and of the slices the processor's time, which has
none of the pauses in which another process had the core.
"""

import gc
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from command_line import (
    check_at_least_one,
    check_seconds,
    fail,
    make_parser,
    numbers,
)
from timed_engine import add_time, make_engine
from tqdm import tqdm

from vllm.benchmarks.eviction import workloads
from vllm.v1.core.eviction.adaptive_config import AdaptiveConfig, resolve_candidates

DEFAULT_CANDIDATES = ",".join(AdaptiveConfig().candidates)
BLOCK_SIZE = 16  # tokens
TURN = 30.0  # seconds of traffic before the other engine has its turn
PARTS = ("scheduler", "shadows", "changes")
DIGITS = {"ratio": 3, "decision": 3, "lru": 3, "slice": 2, "processor": 2}


# ---- The scheduler. ----


@dataclass
class SchedulerCost:
    """Of one pool and length of prompts.

    Attributes:
        pool: Blocks.
        prompt: Mean length, tokens.
        lru: Milliseconds of scheduler under `lru` for a request.
        ratio: Of `adaptive` to it, median over the turns.
        decision: Milliseconds, the longest; a switch that it starts included.
        decisions: How many there were.

    """

    pool: int
    prompt: int
    lru: float
    ratio: float
    decision: float
    decisions: int


def longer(workload: workloads.Workload, factor: int) -> workloads.Workload:
    """The same sessions with prompts that are longer, and as many requests fewer."""
    names = ["service_prompt", "single_input", "chat_prompt", "chat_first_input"]
    names += ["chat_input", "agent_prompt", "agent_first_input", "agent_input"]
    scaled = {name: getattr(workload, name) * factor for name in names}
    return replace(
        workload,
        max_tokens=workload.max_tokens * factor,
        rate=workload.rate / factor,
        **scaled,
    )


def measure_scheduler(
    candidates: list[str], pool: int, factor: int, seconds: float, progress: tqdm
) -> SchedulerCost:
    """Two engines take turns at the same traffic."""
    workload = longer(workloads.P1.workload, factor)
    mix = workloads.Mix(33.3, 33.3, 33.4)
    # Drifts make decisions; there must be some.
    schedule = [(seconds / 2, mix), (seconds / 2, workloads.Mix(80, 15, 5))]
    trace = workloads.generate(workload, schedule)
    spent = {"lru": 0.0, "adaptive": 0.0}
    engines = {}
    for policy in spent:

        def add(taken: float, policy: str = policy) -> None:
            spent[policy] += taken

        config = {"candidates": candidates} if policy == "adaptive" else {}
        engines[policy] = make_engine(trace, pool, policy, add, config)
    decisions: list[float] = []
    add_time(engines["adaptive"].scheduler.eviction, ("_follow",), decisions.append)

    ratios = []
    until = 0.0
    warm = seconds / 4
    lru_total = 0.0
    while until < seconds:
        until += TURN
        order = list(engines) if round(until / TURN) % 2 else list(reversed(engines))
        before = dict(spent)
        for policy in order:
            engines[policy].run(until)
        taken = {policy: spent[policy] - before[policy] for policy in spent}
        lru_total += taken["lru"]
        if until > warm and taken["lru"] > 0:
            ratios.append(taken["adaptive"] / taken["lru"])
        progress.update()
    for engine in engines.values():
        engine.scheduler.shutdown()
    return SchedulerCost(
        pool=pool,
        prompt=round(float(trace.prompt_tokens.mean())),
        lru=1e3 * lru_total / len(trace),
        ratio=statistics.median(ratios),
        decision=1e3 * max(decisions, default=0.0),
        decisions=len(decisions),
    )


# ---- The shadows. ----


@dataclass
class ShadowCost:
    """Of one candidate and pool.

    Attributes:
        policy: The candidate.
        pool: Blocks.
        prompt: Blocks of each.
        access: Nanoseconds for a block of a prompt.
        memory: Bytes for a block of the pool.

    """

    policy: str
    pool: int
    prompt: int
    access: float
    memory: float


def measure_shadow(policy: str, pool: int, prompt: int, requests: int) -> ShadowCost:
    """Half of each prompt is a prefix that one of many shares, the rest is new."""
    from vllm._eviction_C import ShadowHost

    draw = random.Random(pool + prompt)
    host = ShadowHost(pool, BLOCK_SIZE, [(policy, {})], threaded=True)
    shared = max(2, pool // prompt)  # half a pool full of prefixes
    prefixes = [
        [draw.getrandbits(63) + 1 for _ in range(prompt // 2)] for _ in range(shared)
    ]
    serial = 0

    def serve(count: int) -> None:
        nonlocal serial
        for _ in range(count):
            serial += 1
            tail = [draw.getrandbits(63) + 1 for _ in range(prompt - prompt // 2)]
            keys = draw.choice(prefixes) + tail
            host.admit(serial, keys, prompt * BLOCK_SIZE, prompt, float(serial))
            host.finish(serial, keys, float(serial))
            if serial % 64 == 0:
                host.drain()
        host.drain()

    serve(3 * pool // prompt + 64)  # turned over
    before = host.busy_seconds
    serve(requests)
    busy = host.busy_seconds - before
    assert not host.failure and not host.dropped
    return ShadowCost(
        policy=policy,
        pool=pool,
        prompt=prompt,
        access=1e9 * busy / (requests * prompt),
        memory=host.bytes / pool,
    )


# ---- Changes of policy. ----


@dataclass
class ChangeCost:
    """Of one pool and pair of policies.

    Attributes:
        old: Was live.
        new: Is live.
        pool: Blocks, all free and cached.
        slice: Milliseconds of the longest slice.
        processor: The same of the thread's time on a processor.
        slices: How many with something to do; one a scheduler step.
        plan: Milliseconds from the question to the plan, on the shadows' thread.

    """

    old: str
    new: str
    pool: int
    slice: float
    processor: float
    slices: int
    plan: float


def full_queue(candidates: list[str], num_blocks: int) -> tuple[Any, Any]:
    """A queue with its shadows; every block holds what was released, and is free."""
    from vllm._eviction_C import ShadowHost
    from vllm.v1.core.block_pool import BlockPool

    from vllm.v1.core.eviction.free_queue import PolicyFreeQueue
    from vllm.v1.core.eviction.registry import get_policy

    pool = BlockPool(num_blocks + 1, True, BLOCK_SIZE)  # one is the null block
    spec = get_policy(candidates[0])
    queue = PolicyFreeQueue(pool, spec.make(pool.num_gpu_blocks, spec.config()))
    host = ShadowHost(num_blocks, BLOCK_SIZE, [(name, {}) for name in candidates])
    queue.attach(host)
    pool.free_block_queue = queue
    draw = random.Random(num_blocks)
    batch = 64
    for serial in range(1, num_blocks // batch + 1):
        hashes = [draw.randbytes(32) for _ in range(batch)]
        request: Any = SimpleNamespace(block_hashes=hashes)
        blocks = pool.get_new_blocks(batch)
        groups = [(0, hashes, blocks, 0)]
        queue.admit(serial, groups, batch * BLOCK_SIZE, batch, 0.0)
        pool.cache_full_blocks(request, blocks, 0, batch, BLOCK_SIZE, 0)
        queue.finish(serial, [(0, hashes)], 0.0)
        pool.free_blocks(reversed(blocks))
        if serial % 256 == 0:
            host.drain()
    host.drain()
    return queue, host


def measure_changes(
    candidates: list[str], num_blocks: int, rounds: int, progress: tqdm
) -> list[ChangeCost]:
    """From each candidate to the next, some times around."""
    from vllm.v1.core.eviction.hand_over import HandOver

    queue, _host = full_queue(candidates, num_blocks)
    longest: dict[tuple[int, int], list[float]] = {}
    dearest: dict[tuple[int, int], list[float]] = {}
    plans: dict[tuple[int, int], list[float]] = {}
    counts: dict[tuple[int, int], int] = {}
    gc.collect()
    gc.disable()
    live = 0
    for turn in range(rounds * len(candidates)):
        new = (turn + 1) % len(candidates)
        change = HandOver(queue, new)
        slices = []
        processor = []
        waited = 0.0
        over = False
        while not over:
            start, used = time.perf_counter(), time.thread_time()
            over = change.advance()
            processor.append(time.thread_time() - used)
            taken = time.perf_counter() - start
            slices.append(taken)
            time.sleep(0.001)  # a step of the engine
            if taken < 5e-5:
                waited += time.perf_counter() - start
        pair = live, new
        longest.setdefault(pair, []).append(max(slices))
        dearest.setdefault(pair, []).append(max(processor))
        plans.setdefault(pair, []).append(waited)
        counts[pair] = sum(taken >= 5e-5 for taken in slices)
        live = new
        progress.update()
    gc.enable()
    return [
        ChangeCost(
            old=candidates[old],
            new=candidates[new],
            pool=num_blocks,
            slice=1e3 * statistics.median(longest[old, new]),
            processor=1e3 * statistics.median(dearest[old, new]),
            slices=counts[old, new],
            plan=1e3 * statistics.median(plans[old, new]),
        )
        for old, new in longest
    ]


# ---- Command line. ----


def print_table(title: str, rows: list[Any], heads: dict[str, str]) -> None:
    """As Markdown, for docs/benchmarks.md."""
    print(f"\n{title}\n\n| {' | '.join(heads.values())} |\n|{'---|' * len(heads)}")
    for row in rows:
        cells = []
        for name in heads:
            value = getattr(row, name)
            digits = DIGITS.get(name, 0)
            cells.append(f"{value:,.{digits}f}" if value != str(value) else value)
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    add: Callable[..., Any] = parser.add_argument
    add("--parts", default=",".join(PARTS), help="comma-separated (%(default)s)")
    add("--candidates", default=DEFAULT_CANDIDATES, help="(%(default)s)")
    add("--pools", default="4096,65536,524288", help="blocks (%(default)s)")
    add("--prompts", default="64,512,2048", help="blocks, for shadows (%(default)s)")
    add("--scheduler-pools", default="13653,54612", help="blocks (%(default)s)")
    add("--longer", default="1,4", help="factors on P1's prompts (%(default)s)")
    add("--seconds", type=float, default=1800.0, help="of traffic (%(default)s)")
    add("--rounds", type=int, default=5, help="of changes (%(default)s)")
    add("--json", action="store_true", help="print all figures as JSON")
    args = parser.parse_args()
    parts = args.parts.split(",")
    for part in parts:
        if part not in PARTS:
            fail(f"--parts {part!r}: must be one of {', '.join(PARTS)}.")
    candidates = args.candidates.split(",")
    try:
        resolve_candidates(candidates)
    except ValueError as error:
        fail(str(error))
    check_at_least_one("--rounds", args.rounds)
    check_seconds("--seconds", args.seconds, 4 * TURN)
    pools = numbers("--pools", args.pools, 256)
    prompts = numbers("--prompts", args.prompts, 2)
    if prompts[-1] > pools[0] // 2:
        fail(f"--prompts {prompts[-1]}: at most half of the least pool, {pools[0]}.")
    scheduler_pools = numbers("--scheduler-pools", args.scheduler_pools, 4096)
    factors = numbers("--longer", args.longer, 1)

    results: dict[str, list[Any]] = {part: [] for part in parts}
    if "scheduler" in parts:
        steps = int(args.seconds / TURN) * (len(scheduler_pools) + len(factors) - 1)
        with tqdm(total=steps, desc="scheduler", disable=None) as progress:
            sizes = [(pool, factors[0]) for pool in scheduler_pools]
            sizes += [(scheduler_pools[-1], factor) for factor in factors[1:]]
            for pool, factor in sizes:
                cost = measure_scheduler(
                    candidates, pool, factor, args.seconds, progress
                )
                results["scheduler"].append(cost)
    if "shadows" in parts:
        sizes = [(pool, prompts[0]) for pool in pools]
        sizes += [(pools[len(pools) // 2], prompt) for prompt in prompts[1:]]
        cases = [(policy, *size) for policy in candidates for size in sizes]
        for policy, pool, prompt in tqdm(cases, desc="shadows", disable=None):
            requests = max(64, 200_000 // prompt)
            results["shadows"].append(measure_shadow(policy, pool, prompt, requests))
    if "changes" in parts:
        total = len(pools) * args.rounds * len(candidates)
        with tqdm(total=total, desc="changes", disable=None) as progress:
            for pool in pools:
                results["changes"] += measure_changes(
                    candidates, pool, args.rounds, progress
                )

    if args.json:
        plain = {part: [asdict(row) for row in rows] for part, rows in results.items()}
        print(json.dumps(plain, indent=1))
        return
    titles: dict[str, tuple[str, dict[str, str]]] = {
        "scheduler": (
            "The scheduler under `adaptive`",
            {
                "pool": "pool, blocks",
                "prompt": "mean prompt, tokens",
                "lru": "lru, ms a request",
                "ratio": "adaptive / lru",
                "decisions": "decisions",
                "decision": "longest decision, ms",
            },
        ),
        "shadows": (
            "A shadow, on its own thread",
            {
                "policy": "policy",
                "pool": "pool, blocks",
                "prompt": "prompt, blocks",
                "access": "ns a block of a prompt",
                "memory": "bytes a block of the pool",
            },
        ),
        "changes": (
            "A change of policy with every block free",
            {
                "old": "from",
                "new": "to",
                "pool": "pool, blocks",
                "slice": "longest slice, ms",
                "processor": "processor's time, ms",
                "slices": "slices",
                "plan": "waiting for the plan, ms",
            },
        ),
    }
    for part in parts:
        title, heads = titles[part]
        print_table(title, results[part], heads)


if __name__ == "__main__":
    main()
