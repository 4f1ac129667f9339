# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How long does an hour of traffic take on vLLM's real scheduler, and how much of
it is the eviction policy's?

    python benchmarks/benchmark_harness.py --mix 33/33/33 --seconds 3600

Replays one mix under `lru` (upstream's queue), each static policy, and `adaptive`
with its default candidates: with the shadows on their own thread, as in an engine.
For each: seconds by the clock, seconds of this process on all cores, seconds spent
in the scheduler's own `schedule` and `update_from_output`, and these over those of
`lru` in the same run.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from tqdm import tqdm

from vllm.benchmarks.eviction import workloads
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine


def timed(call: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    """Add up the time that calls take on this thread."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        start = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            total[0] += time.thread_time() - start

    return wrapped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mixes = {str(mix): mix for mix in workloads.MIXES}
    parser.add_argument("--mix", choices=mixes, default="33/33/33", metavar="MIX")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--policies", default="lru,s3fifo,arc,sieve,adaptive")
    args = parser.parse_args()
    if args.seconds <= 0:
        print(f"--seconds is {args.seconds:g}: must be positive.", file=sys.stderr)
        raise SystemExit(2)

    preset = workloads.P1
    schedule = workloads.constant(mixes[args.mix], args.seconds)
    trace = workloads.generate(preset.workload, schedule)
    print(
        f"{args.mix} for {args.seconds:.0f} s: {len(trace)} requests, "
        f"{len(trace.keys)} blocks; pool of {preset.num_blocks} blocks"
    )
    print("policy     hit rate   clock s     CPU s   scheduler s   over lru")
    baseline = None
    for policy in tqdm(args.policies.split(","), disable=None):
        try:
            engine = VirtualEngine(
                trace, preset.num_blocks, {"eviction_policy": policy}
            )
        except ValueError as error:
            print(f"--policies: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        # Upstream's queue does not count evictions; here it must not pay for it.
        pool = engine.scheduler.kv_cache_manager.block_pool
        vars(pool.free_block_queue).pop("popleft_n", None)
        inside = [0.0]
        for name in ("schedule", "update_from_output"):
            call = getattr(engine.scheduler, name)
            setattr(engine.scheduler, name, timed(call, inside))
        clock, cpu = time.perf_counter(), time.process_time()
        engine.run()
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        baseline = baseline or inside[0]
        rate = engine.result().hit_rate
        tqdm.write(
            f"{policy:10} {100 * rate:8.2f} {clock:9.1f} {cpu:9.1f} {inside[0]:13.2f} "
            f"{inside[0] / baseline:10.3f}"
        )


if __name__ == "__main__":
    main()
