# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What holes are worth on a twin of a production trace: compute saved, and holes.

    python benchmarks/compute_savings.py
    python benchmarks/compute_savings.py --block-size 512 \\
        --policies lru,random-compute,partial-compute:chunk=16,belady,belady-compute,ilp

The traffic is the preset `production` of `vllm bench eviction generate`, drawn in
memory. A request holds no block after it has come, as in the simulator of "When Fancy
Eviction Fails"; so all replays, those of the oracles too, are of the same events. Pools
are 24, 48 and 96 GiB of that paper.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from command_line import check_at_least_one, check_seconds, fail, make_parser

from vllm.benchmarks.eviction.cost_models import parse_cost
from vllm.benchmarks.eviction.policy_list import parse_policies
from vllm.benchmarks.eviction.service import Service
from vllm.benchmarks.eviction.sweep import run_grid
from vllm.benchmarks.eviction.tables import check_outputs, write_table
from vllm.benchmarks.eviction.workloads import PRODUCTION, constant, generate

POOLS = (24, 48, 96)  # GiB
TOKENS = 16_384 * 16  # of the smallest
AT_ONCE = Service(base=0.0, prefill_rate=1e12, decode_seconds=0.0)
POLICIES = (
    "lru,session-lru,random-compute,partial-compute:chunk=32,"
    "partial-compute:chunk=512,belady,belady-compute"
)


def main() -> None:
    parser = make_parser(__doc__)
    add: Callable[..., Any] = parser.add_argument
    add("--seconds", type=float, default=1800.0, help="of traffic (%(default)s)")
    add("--block-size", type=int, default=16, help="tokens (%(default)s)")
    add("--max-tokens", type=int, default=240_000, help="of a prompt (%(default)s)")
    add("--seed", type=int, default=1)
    add("--policies", default=POLICIES, help="(%(default)s)")
    add(
        "--cost", default="tests/lab/configs/qwen3_coder_30b.json", help="(%(default)s)"
    )
    add("--json", help="a file")
    args = parser.parse_args()
    check_seconds("--seconds", args.seconds)
    if args.seed < 0:
        fail(f"--seed {args.seed}: must be 0 or more.")
    check_at_least_one("--block-size", args.block_size)
    pools = [gib * TOKENS // POOLS[0] // args.block_size for gib in POOLS]
    if args.max_tokens > pools[0] * args.block_size:
        fail(
            f"--max-tokens {args.max_tokens}: the smallest pool holds "
            f"{pools[0] * args.block_size:,}."
        )
    args.csv = args.parquet = None
    try:
        check_outputs(args)
        cost = parse_cost(args.cost)
        policies = parse_policies(args.policies)
        workload = replace(
            PRODUCTION.workload,
            block_size=args.block_size,
            max_tokens=args.max_tokens,
        )
        trace = generate(workload, constant(PRODUCTION.mix, args.seconds), args.seed)
        if not len(trace):
            fail(f"--seconds {args.seconds:g}: no request in so little traffic.")
        grid = run_grid(trace, pools, policies, cost=cost, service=AT_ONCE)
        rows = [row for _, row in grid]
    except ValueError as error:
        fail(str(error))
    blocks = int(trace.prompt_blocks.sum())
    title = f"{len(trace):,} requests, {blocks:,} prompt blocks, {cost.name}"
    write_table(rows, args, title, {"prompt_blocks", "prompt_tokens", "hit_tokens"})


if __name__ == "__main__":
    main()
