# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Hits of every native policy on the synthetic traces, at eight capacities.

    python -m tests.eviction.golden_counts            prints the table
    python -m tests.eviction.golden_counts --write    writes golden_counts.json
    python -m tests.eviction.golden_counts --write s4fifo lhd    only these anew

What is written comes from the naive models (a minute), what is tested from the C++: so
neither can vouch for itself; but `gittins` has naive models of its parts only, and its
counts say that it chooses as it did. The committed file changes only when a policy is
meant to choose otherwise; say in the commit why.

`accesses` is one block at a time with none in use, as in the papers; `requests` holds
the blocks of twelve requests at a time, as the engine does.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tqdm import tqdm
from vllm._eviction_C import make_policy, native_policies

from tests.eviction.naive_models import MODELS
from tests.eviction.request_pool import RequestPool
from tests.eviction.synthetic_trace import synthetic_requests, synthetic_trace
from tests.eviction.unpinned_cache import count_hits

FILE = Path(__file__).with_suffix(".json")
CAPACITIES = (20, 40, 80, 160, 320, 640, 1280, 2560)
POOL_SIZES = (250, 350, 450, 600, 800, 1100, 1600, 2500)
NUM_RUNNING = 12
# Beside the defaults: the parameters with which a paper is reproduced.
VARIANTS = {
    "lfu": {"lfu ageing=false": {"ageing": 0.0}},
    "partial-compute": {"partial-compute small_ratio=0.1": {"small_ratio": 0.1}},
    "s3fifo": {"s3fifo promotion=2": {"promotion": 2.0}},
    # The requests of the trace are short; the accesses have no depth.
    "t-lru": {"t-lru xi=256 next_prompt=64": {"xi": 256.0, "next_prompt": 64.0}},
    "s4fifo": {"s4fifo tau_s=2 tau_g=1": {"tau_s": 2.0, "tau_g": 1.0}},
}

_accesses = cache(synthetic_trace)
_requests = cache(synthetic_requests)

Table = dict[str, list[int]]


def variants(name: str) -> dict[str, dict[str, float]]:
    return {name: {}} | VARIANTS.get(name, {})


# Name, blocks, parameters.
Make = Callable[[str, int, dict[str, float]], Any]


def naive(name: str, num_slots: int, parameters: dict[str, float]) -> Any:
    if name not in MODELS:
        return make_policy(name, num_slots, parameters)
    arguments: dict[str, Any] = parameters
    return MODELS[name](num_slots, **arguments)


def hits_of_accesses(
    name: str, parameters: dict[str, float], make: Make = make_policy
) -> list[int]:
    trace = _accesses()
    return [
        count_hits(name, size, trace, make(name, size, parameters))
        for size in CAPACITIES
    ]


def hits_of_requests(
    name: str, parameters: dict[str, float], make: Make = make_policy
) -> list[int]:
    return [_hits_in_pool(make(name, size, parameters), size) for size in POOL_SIZES]


def _hits_in_pool(policy: Any, num_blocks: int) -> int:
    pool = RequestPool(policy, num_blocks)
    total = 0
    for keys in _requests():
        while (hits := pool.admit(keys)) is None:  # wait for blocks
            pool.finish(pool.running[0])
        total += hits
        if len(pool.running) >= NUM_RUNNING:
            pool.finish(pool.running[0])
    return total


def golden_counts(names: Sequence[str], make: Make = make_policy) -> dict[str, Table]:
    counts: dict[str, Table] = {"accesses": {}, "requests": {}}
    cases = [
        (name, label, parameters)
        for name in names
        for label, parameters in variants(name).items()
    ]
    for name, label, parameters in tqdm(cases, unit="policy"):
        counts["accesses"][label] = hits_of_accesses(name, parameters, make)
        counts["requests"][label] = hits_of_requests(name, parameters, make)
    return counts


def digest_of_traces() -> str:
    traces = json.dumps([_accesses(), _requests()])
    return hashlib.sha256(traces.encode()).hexdigest()


def as_json(counts: dict[str, Table]) -> str:
    """A line for each policy, so that a change reads well as a diff."""
    parts = [f'  "traces": "{digest_of_traces()}"']
    for kind, table in counts.items():
        lines = [f'    "{label}": {json.dumps(hits)}' for label, hits in table.items()]
        parts.append(f'  "{kind}": {{\n' + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="POLICY", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    args = parser.parse_args()
    names = args.names or native_policies()
    counts = golden_counts(names, naive if args.write else make_policy)
    for kind, sizes in (("accesses", CAPACITIES), ("requests", POOL_SIZES)):
        print(f"{kind:22}", *(f"{size:>7}" for size in sizes))
        for label, hits in counts[kind].items():
            print(f"  {label:20}", *(f"{count:>7}" for count in hits))
    if not args.write:
        return
    if args.names:
        written = json.loads(FILE.read_text())
        for kind, table in counts.items():
            counts[kind] = dict(sorted((written[kind] | table).items()))
    FILE.write_text(as_json(counts))


if __name__ == "__main__":
    main()
