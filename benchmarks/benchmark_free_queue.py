# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What does a policy cost on the scheduler's path, against vLLM's own free queue?

    python benchmarks/benchmark_free_queue.py
    python benchmarks/benchmark_free_queue.py --policies s3fifo,arc --pools 4096 --json

Everything goes through the real `BlockPool`, in steady state: every block is cached,
so each allocation evicts. Two tables:

    life cycle   per block: allocate with eviction, insert the hash, release, take it
                 again for a request that hits it, release; and what the scheduler
                 tells a policy of the two requests. Upstream's queue and ours take
                 turns in one process; a ratio is the median over the turns.
    operations   per block and call of the queue: popleft_n, append_n, prepend_n,
                 remove; and how each grows with the pool.

`lru` leaves upstream's queue object in place, so its ratio is 1 by identity;
`lru (C++)` is the LRU that `adaptive` puts behind our queue. Times are wall times:
on a busy machine compare the ratios only. With `--json`, `{policy: {pool: ratio}}`
of the life cycle.
"""

import argparse
import gc
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from command_line import check_at_least_one, fail, numbers
from tqdm import tqdm

BATCH = 64  # blocks of a request
BLOCK_SIZE = 16  # tokens
TURNS = 16  # batches before the other queue has its turn
UPSTREAM = "upstream"
NATIVE_LRU = "lru (C++)"


@dataclass
class Bench:
    """One pool in steady state, with upstream's queue or with ours.

    Attributes:
        pool: A `BlockPool`.
        ours: A `PolicyFreeQueue`, or None.
        prompts: Hashes of the requests that were served, as far as they are known
            to be resident.

    """

    pool: Any
    ours: Any
    random: random.Random
    prompts: list[list[bytes]] = field(default_factory=list)
    serial: int = 0

    def new_request(self) -> Any:
        """A request whose blocks nobody has seen. Hashes are as good as random."""
        hashes = [self.random.randbytes(32) for _ in range(BATCH)]
        return SimpleNamespace(block_hashes=hashes)

    def resident_blocks(self) -> tuple[list[bytes], list[Any]]:
        """A batch of cached blocks: prefixes of earlier requests, in random order."""
        hashes: list[bytes] = []
        blocks: list[Any] = []
        used: list[list[bytes]] = []
        while len(blocks) < BATCH:
            # Each at most once in a batch; those that are gone are forgotten.
            index = self.random.randrange(len(self.prompts))
            prompt = self.prompts[index]
            self.prompts[index] = self.prompts[-1]
            self.prompts.pop()
            for i, block_hash in enumerate(prompt[: BATCH - len(blocks)]):
                found = self.pool.get_cached_block(block_hash, [0])
                if found is None:
                    prompt = prompt[:i]
                    break
                hashes.append(block_hash)
                blocks += found
            if prompt:
                used.append(prompt)
        self.prompts += used
        return hashes, blocks

    def remember(self, request: Any) -> None:
        """A served request may be hit."""
        self.prompts.append(request.block_hashes)

    def admit(self, hashes: list[bytes], blocks: list[Any], num_hits: int) -> None:
        """What the scheduler's hook tells a policy of ours."""
        if self.ours is not None:
            self.serial += 1
            groups = [(0, hashes, blocks, num_hits)]
            self.ours.admit(self.serial, groups, BATCH * BLOCK_SIZE, BATCH, 0.0)

    def release(self, hashes: list[bytes], blocks: list[Any]) -> None:
        """End the request that was admitted last. Only a policy that learns from
        paths is told of it."""
        if self.ours is not None and self.ours.observes_finish:
            self.ours.finish(self.serial, [(0, hashes)], 0.0)
        self.pool.free_blocks(reversed(blocks))

    def serve(self, request: Any) -> list[Any]:
        """Allocate, fill and admit a request; its blocks are in use."""
        blocks = self.pool.get_new_blocks(BATCH)
        self.admit(request.block_hashes, blocks, 0)
        self.pool.cache_full_blocks(request, blocks, 0, BATCH, BLOCK_SIZE, 0)
        return blocks

    def life_cycle(self) -> int:
        """Nanoseconds that a batch of blocks takes from allocation to its second
        release."""
        request = self.new_request()
        hashes, hits = self.resident_blocks()
        start = perf_counter_ns()
        self.pool.touch(hits)
        self.admit(hashes, hits, BATCH)
        self.release(hashes, hits)
        blocks = self.serve(request)
        self.release(request.block_hashes, blocks)
        elapsed = perf_counter_ns() - start
        self.remember(request)
        return elapsed

    def operations(self) -> dict[str, int]:
        """Nanoseconds of a batch in each operation of the queue, with the rest of
        the traffic around it."""
        queue = self.pool.free_block_queue
        request = self.new_request()
        hashes, hits = self.resident_blocks()
        remove = queue.remove
        start = perf_counter_ns()
        for block in hits:
            remove(block)
        removing = perf_counter_ns() - start
        for block in hits:
            block.ref_cnt = 1
        self.admit(hashes, hits, BATCH)
        self.release(hashes, hits)
        with Stopwatch(self.pool, "popleft_n") as popping:
            blocks = self.serve(request)
        with Stopwatch(self.pool, "append_n") as appending:
            self.release(request.block_hashes, blocks)
        self.remember(request)
        return {
            "remove": removing,
            "popleft_n": popping.taken,
            "append_n": appending.taken,
        }

    def prepend(self) -> int:
        """Nanoseconds to give back a batch that was never filled."""
        blocks = self.pool.get_new_blocks(BATCH)
        with Stopwatch(self.pool, "prepend_n") as prepending:
            self.pool.free_blocks(blocks)
        return prepending.taken


class Stopwatch:
    """Stands in for a pool's queue and takes the time of one method.

    Attributes:
        taken: Nanoseconds.

    """

    def __init__(self, pool: Any, method: str):
        self._pool = pool
        self._queue = pool.free_block_queue
        self._method = method
        self.taken = 0

    def __enter__(self) -> "Stopwatch":
        self._pool.free_block_queue = self
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.free_block_queue = self._queue

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._queue, name)
        if name != self._method:
            return method

        def timed(*arguments: Any) -> Any:
            start = perf_counter_ns()
            answer = method(*arguments)
            self.taken += perf_counter_ns() - start
            return answer

        return timed


def make_bench(num_blocks: int, policy: str, progress: tqdm) -> Bench:
    """Fill a pool, put the policy in, and turn its content over once."""
    from vllm.v1.core.block_pool import BlockPool

    from vllm.v1.core.eviction.free_queue import install

    pool = BlockPool(num_blocks + 1, True, BLOCK_SIZE)  # one is the null block
    ours = None
    if policy != UPSTREAM:
        name = "lru" if policy == NATIVE_LRU else policy
        ours = install(pool, name, {}, replace_lru=True)
    bench = Bench(pool, ours, random.Random(num_blocks))
    batches = num_blocks // BATCH
    for _ in range(batches):
        request = bench.new_request()
        bench.release(request.block_hashes, bench.serve(request))
        bench.remember(request)
        progress.update()
    for _ in range(batches):
        bench.life_cycle()
        progress.update()
    return bench


@dataclass
class Result:
    """Of one policy and pool; nanoseconds a block, medians."""

    life_cycle: float
    ratio: float
    operations: dict[str, float]
    upstream_operations: dict[str, float]


def median_of(samples: list[int]) -> float:
    """Nanoseconds a block, of samples of a batch."""
    return statistics.median(samples) / BATCH


def measure(upstream: Bench, bench: Bench, rounds: int, progress: tqdm) -> Result:
    """Let the two queues take turns; the machine's mood is that of both."""
    cycles: dict[int, list[int]] = defaultdict(list)
    ratios: list[float] = []
    operations: dict[tuple[int, str], list[int]] = defaultdict(list)
    turns = [(0, upstream), (1, bench)]
    for round_number in range(rounds):
        now: dict[int, list[int]] = {}
        for which, who in turns if round_number % 2 else reversed(turns):
            now[which] = [who.life_cycle() for _ in range(TURNS)]
            for _ in range(TURNS):
                for name, taken in who.operations().items():
                    operations[which, name].append(taken)
            operations[which, "prepend_n"] += [who.prepend() for _ in range(TURNS)]
            # Those blocks hold nothing now: back to the steady state.
            request = who.new_request()
            who.release(request.block_hashes, who.serve(request))
            who.remember(request)
            cycles[which] += now[which]
        ratios.append(statistics.median(now[1]) / statistics.median(now[0]))
        progress.update()
    names = ["popleft_n", "append_n", "prepend_n", "remove"]
    ours, theirs = (
        {name: median_of(operations[which, name]) for name in names} for which in (1, 0)
    )
    return Result(median_of(cycles[1]), statistics.median(ratios), ours, theirs)


def print_tables(results: dict[str, dict[int, Result]], pools: list[int]) -> None:
    """As Markdown, for docs/benchmarks.md."""
    heads = [f"{pool:,}" for pool in pools]
    print("Life cycle of a block, against upstream's queue (ns a block)\n")
    print(f"| policy | {' | '.join(heads)} |")
    print("|---|" + "---|" * len(pools))
    print("| lru |" + " 1.00 (the same object) |" * len(pools))
    for policy, by_pool in results.items():
        cells = [f"{r.ratio:.2f} ({r.life_cycle:,.0f})" for r in by_pool.values()]
        print(f"| {policy} | {' | '.join(cells)} |")
    print("\nOperations of the queue, ns a block\n")
    print(f"| operation | queue | {' | '.join(heads)} | growth |")
    print("|---|---|" + "---|" * (len(pools) + 1))
    any_policy = next(iter(results.values()))
    for name in ("popleft_n", "append_n", "prepend_n", "remove"):
        rows = {UPSTREAM: [r.upstream_operations[name] for r in any_policy.values()]}
        rows |= {
            policy: [r.operations[name] for r in by_pool.values()]
            for policy, by_pool in results.items()
        }
        for label, values in rows.items():
            times = " | ".join(f"{value:,.0f}" for value in values)
            print(f"| {name} | {label} | {times} | {values[-1] / values[0]:.1f} × |")


def parse_policies(text: str | None) -> list[str]:
    """All that are registered, if not given; `lru` as the C++ one."""
    from vllm.v1.core.eviction.registry import get_policy, policy_names

    policies = text.split(",") if text else policy_names()
    for name in policies:
        try:
            get_policy(name)
        except ValueError as error:
            fail(str(error))
    return [NATIVE_LRU if name == "lru" else name for name in dict.fromkeys(policies)]


def main() -> None:
    """Measure each policy at each size and print."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        epilog="Both tables are in docs/benchmarks.md.",
    )
    add: Callable[..., Any] = parser.add_argument
    add("--policies", help="comma-separated; default: all that are registered")
    add("--pools", default="4096,65536,524288", help="sizes in blocks (%(default)s)")
    add("--rounds", type=int, default=20, help="turns of each queue (%(default)s)")
    add("--json", action="store_true", help="print {policy: {pool: ratio}}")
    args = parser.parse_args()
    check_at_least_one("--rounds", args.rounds)
    pools = numbers("--pools", args.pools, 4 * BATCH)
    policies = parse_policies(args.policies)

    setup = sum(2 * (pool // BATCH) for pool in pools)
    steps = setup + len(policies) * (setup + len(pools) * args.rounds)
    results: dict[str, dict[int, Result]] = {policy: {} for policy in policies}
    with tqdm(total=steps, unit="step", disable=None) as progress:
        for num_blocks in pools:
            progress.set_description(f"{num_blocks:,} blocks")
            upstream = make_bench(num_blocks, UPSTREAM, progress)
            for policy in policies:
                bench = make_bench(num_blocks, policy, progress)
                gc.collect()
                gc.disable()
                results[policy][num_blocks] = measure(
                    upstream, bench, args.rounds, progress
                )
                gc.enable()
                del bench
    if args.json:
        ratios = {
            policy: {str(pool): round(r.ratio, 3) for pool, r in by_pool.items()}
            for policy, by_pool in results.items()
        }
        print(json.dumps({"lru": {str(pool): 1.0 for pool in pools}} | ratios))
    else:
        print_tables(results, pools)


if __name__ == "__main__":
    main()
