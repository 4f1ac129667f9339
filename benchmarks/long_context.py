# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Long conversations that take turns in a pool too small for all: what do holes save?

    python benchmarks/long_context.py --model models/SmolLM2-135M-Instruct \\
        --block-size 32 --max-model-len 8192 --enforce-eager --out results/

Each of --sessions conversations begins with --context tokens, and each of its turns
adds --message more. In a round every conversation has one turn; the order within a
round is drawn anew. Between two turns come --one-offs prompts of half to all of
--one-off-length tokens that nobody asks again. The pool holds --pool of the tokens of
all conversations: what was used least recently is then nearly always what comes next.
Policies are run --runs times, in turn, on engines of their own; a time to first token
counts from when a request was due.

Requests are --gap seconds apart on average (exponential). Choose it so that the engine
is busy, and keeps up, under lru: about 1.3 times what a request takes it.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmark_prefix_caching import (
    check_lengths,
    engine_of,
    live_policies,
    model_of,
)
from command_line import (
    check_at_least_one,
    end_as_interrupted,
    fail,
    make_folder,
    make_parser,
)
from prefix_heats import add_side_by_side, check_side_by_side, run_all
from prefix_prompts import Ask
from prefix_report import as_json, draw, write_table
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

POLICIES = "lru,s3fifo,gittins,partial-compute"


def turns(args: argparse.Namespace, vocabulary: int) -> list[Ask]:
    """All requests, in order of their times."""
    rng = np.random.default_rng(args.traffic_seed)
    low = min(1000, vocabulary // 2)

    def words(length: int) -> np.ndarray:
        return rng.integers(low, vocabulary, length, dtype=np.int32)

    histories = [words(args.context) for _ in range(args.sessions)]
    asks, now = [], 0.0
    for _ in range(args.turns):
        for session in rng.permutation(args.sessions):
            history = np.concatenate([histories[session], words(args.message)])
            histories[session] = history
            least = max(1, args.one_off_length // 2)
            most = max(least, args.one_off_length - 1)
            lengths = rng.integers(least, most, args.one_offs, endpoint=True)
            for prompt in [history, *map(words, lengths)]:
                asks.append(Ask(now, prompt, args.output_len))
                now += rng.exponential(args.gap)
    return asks


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__, FlexibleArgumentParser)
    add = parser.add_argument
    add("--sessions", type=int, default=8)
    add("--turns", type=int, default=6, help="of each session")
    add("--context", type=int, default=5000, help="tokens that a session begins with")
    add("--message", type=int, default=100, help="tokens that a turn adds")
    add("--one-offs", type=int, default=6, help="prompts between two turns")
    add("--one-off-length", type=int, default=512, help="tokens at most")
    add("--pool", type=float, default=0.6, help="share of all tokens that it holds")
    add("--gap", type=float, default=4.0, help="mean seconds between requests")
    add("--output-len", type=int, default=4)
    add("--traffic-seed", type=int, default=1)
    add("--runs", type=int, default=3, help="of each policy, in turn")
    add("--compare", default=POLICIES, metavar="POLICIES", help="default: %(default)s")
    add_side_by_side(parser)
    add("--out", type=Path, help="folder for figures and plot")
    AsyncEngineArgs.add_cli_args(parser)
    args: argparse.Namespace = parser.parse_args()
    if args.one_offs < 0:
        fail(f"--one-offs is {args.one_offs}: must be 0 or more.")
    names = ("sessions", "turns", "context", "message", "output_len", "runs")
    for name in (*names, "one_off_length"):
        check_at_least_one("--" + name.replace("_", "-"), getattr(args, name))
    for name in ("pool", "gap"):
        if not 0 < getattr(args, name) < float("inf"):
            fail(f"--{name} is {getattr(args, name):g}: must be more than 0.")
    if args.traffic_seed < 0:
        fail(f"--traffic-seed is {args.traffic_seed}: must be 0 or more.")
    make_folder("--out", args.out)
    if args.block_size is None:
        args.block_size = 16
    return args


def main() -> int:
    end_as_interrupted()
    args = parse()
    try:
        policies = live_policies(args.compare)
        if args.side_by_side:
            check_side_by_side(len(policies))
        base = AsyncEngineArgs.from_cli_args(args)
        model = model_of(base)
        asks = turns(args, model.get_vocab_size())
        longest = args.context + args.turns * args.message
        blocks = round(args.pool * args.sessions * longest / args.block_size)
        base = replace(base, num_gpu_blocks_override=blocks + 1)  # the null block
        check_lengths(asks, base, model.max_model_len)
        title = (
            f"{args.sessions} conversations of {args.context:,} to {longest:,} tokens, "
            f"{len(asks)} requests, {args.gap:g} s apart, in {blocks:,} blocks of "
            f"{args.block_size} tokens"
        )
        print(f"{title}.\n", flush=True)
        engines = {each.label: engine_of(base, each, 1.0) for each in policies}
    except ValueError as error:
        fail(" ".join(str(error).split()))
    heats, status = run_all(engines, asks, args.runs, args.side_by_side)
    if heats:
        write_table(heats, sys.stdout)
    if heats and args.out is not None:
        figures = as_json(heats, {"workload": title})
        (args.out / "long-context.json").write_text(json.dumps(figures, indent=1))
        draw(heats, args.out / "long-context.png", title)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
