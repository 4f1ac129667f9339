# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What share of prompt blocks does each policy hit on a recorded trace?

    python benchmarks/hit_rates.py mooncake_conversation_trace.jsonl.zst

Replays the trace with the pool model and the service-time model, in points of hit
rate (prefix hits over full prompt blocks), one row for each size of the pool.
"""

import argparse
import json
import sys
from typing import NoReturn

from tqdm import tqdm

from vllm.benchmarks.eviction.replay import Candidate, replay
from vllm.benchmarks.eviction.trace_files import read_block_ids
from vllm.v1.core.eviction.registry import get_policy

BLOCKS = "1708,3417,8544,17089,34179"
POLICIES = "lru,s3fifo,sieve,arc,gittins"


def fail(message: str) -> NoReturn:
    """Say what is wrong with the command, in one line."""
    print(f"hit_rates: {message}", file=sys.stderr)
    sys.exit(2)


def pool_sizes(text: str) -> list[int]:
    """Read the sizes of `--blocks`."""
    sizes = []
    for part in text.split(","):
        if not part.strip().isdigit() or int(part) == 0:
            fail(f"--blocks {part!r}: sizes are positive whole numbers, as in {BLOCKS}")
        sizes.append(int(part))
    return sizes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trace", help="a file that trace_files.py reads")
    parser.add_argument("--tokens-per-id", type=int, default=512)
    parser.add_argument("--blocks", default=BLOCKS, help="sizes of the pool")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sizes = pool_sizes(args.blocks)
    names = args.policies.split(",")
    try:
        for name in names:
            get_policy(name)
        trace = read_block_ids(args.trace, args.tokens_per_id)
    except (OSError, ValueError) as error:
        fail(str(error))
    rows = []
    with tqdm(total=len(sizes) * len(names), unit="replay", disable=None) as bar:
        for blocks in sizes:
            rates = {}
            for name in names:
                result = replay(trace, blocks, Candidate(name))
                rates[name] = round(100 * result.hit_rate, 2)
                bar.update()
            rows.append({"blocks": blocks, **rates})
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"| blocks | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
