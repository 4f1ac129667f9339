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

import os
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from command_line import check_seconds, fail, make_parser
from timed_engine import make_engine
from tqdm import tqdm

from vllm.benchmarks.eviction import workloads
from vllm.v1.core.eviction.config import validate_eviction


def main() -> None:
    parser = make_parser(__doc__)
    mixes = {str(mix): mix for mix in workloads.MIXES}
    parser.add_argument("--mix", choices=mixes, default="33/33/33", metavar="MIX")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--policies", default="lru,s3fifo,arc,sieve,adaptive")
    args = parser.parse_args()
    check_seconds("--seconds", args.seconds)

    policies = args.policies.split(",")
    for policy in policies:
        try:
            validate_eviction(policy, {})
        except ValueError as error:
            fail(f"--policies: {error}")

    preset = workloads.P1
    schedule = workloads.constant(mixes[args.mix], args.seconds)
    trace = workloads.generate(preset.workload, schedule)
    print(
        f"{args.mix} for {args.seconds:.0f} s: {len(trace)} requests, "
        f"{len(trace.keys)} blocks; pool of {preset.num_blocks} blocks"
    )
    print("policy     hit rate   clock s     CPU s   scheduler s   over lru")
    baseline = None
    for policy in tqdm(policies, disable=None):
        calls: list[float] = []
        engine = make_engine(trace, preset.num_blocks, policy, calls.append)
        clock, cpu = time.perf_counter(), time.process_time()
        engine.run()
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        inside = sum(calls)
        baseline = baseline or inside
        rate = engine.result().hit_rate
        tqdm.write(
            f"{policy:10} {100 * rate:8.2f} {clock:9.1f} {cpu:9.1f} {inside:13.2f} "
            f"{inside / max(baseline, 1e-9):10.3f}"
        )


if __name__ == "__main__":
    main()
