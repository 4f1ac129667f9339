# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The same traffic on two eviction policies, side by side, in under six minutes.

A server is started with each policy, with a pool that is far too small, and both get
two loads of real traffic over HTTP: a busy one, in which many conversations compete for
the pool, and a quiet one. Two, because that is the point of this project: which policy
is better depends on the traffic.

    make demo
    python examples/demo/demo.py --policies lru,adaptive --model DIR

The slice is fixed: conversations are numbered by their first request and every n-th is
taken. Pool and loads were settled on this trace. The table says whether the slice was
long enough to tell the policies apart; where it was not, nothing follows from it.
"""

import argparse
import asyncio
import itertools
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import compare
from generated import generate
from replay import Answer, replay
from report import FOOTNOTE, Run, show
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from server import (
    EVICTIONS,
    HITS,
    QUERIES,
    START_TIMEOUT_S,
    Server,
    ServerError,
    vocabulary_size,
)
from traffic import BLOCK, SCALE, Load, Prompt, read_trace, take

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models" / "SmolLM2-135M-Instruct"
TRACE = (
    REPOSITORY.parent / "shared" / "traces" / "mooncake_conversation_trace.jsonl.zst"
)
LOGS = REPOSITORY / "build" / "demo"

POLICIES = ("lru", "s3fifo")
#: One more than the pool may use: the engine keeps a block for itself.
NUM_BLOCKS = 65
LOADS = (Load("busy", every=5, minutes=20), Load("quiet", every=30, minutes=60))
#: Of the time for the replay, what each load may take.
SHARES = {"busy": 0.7, "quiet": 0.3}
MINUTES = 6.0
#: Kept back for stopping the servers and for the bootstrap.
RESERVE_S = 20.0
#: However slowly the servers started, so long is replayed.
MIN_REPLAY_S = 60.0


def load_traffic(trace: Path) -> tuple[str, dict[str, list[Prompt]]]:
    """The prompts of each load, and a line that says where they come from."""
    if trace.exists():
        rows = list(read_trace(trace))
        source = f"real traffic: {trace.name}"
    else:
        rows = list(generate())
        source = f"a GENERATED mix, because {trace} does not exist"
    return source, {load.name: take(rows, load) for load in LOADS}


def describe(name: str, prompts: list[Prompt]) -> str:
    """A line about the size of a load."""
    load = next(load for load in LOADS if load.name == name)
    blocks = set(itertools.chain.from_iterable(prompt.blocks for prompt in prompts))
    share = (NUM_BLOCKS - 1) / max(1, len(blocks))
    return (
        f"{name}: every {load.every}th conversation of the first {load.minutes:g} "
        f"minutes, {len(prompts)} requests, {len(blocks)} distinct blocks, of which "
        f"the pool holds {share:.1%}"
    )


def start_servers(
    policies: list[str], model: Path, longest: int, stack: ExitStack
) -> dict[str, Server]:
    """Starts a server for each policy and waits until all answer.

    Args:
        policies: For ``--eviction-policy``.
        model: Its folder.
        longest: Tokens in the longest prompt.
        stack: Stops the servers when it is left.

    Raises:
        ServerError: One did not start.
    """
    servers = {}
    for policy in policies:
        log = LOGS / f"server-{policy}.log"
        server = Server(model, policy, NUM_BLOCKS, BLOCK, longest + BLOCK, log)
        servers[policy] = stack.enter_context(server)
    for server in servers.values():
        server.wait_until_ready()
    return servers


def replay_load(
    load: str,
    prompts: list[Prompt],
    servers: dict[str, Server],
    vocabulary: int,
    budget: float,
    progress: Progress,
) -> dict[str, Run]:
    """Replays a load on all servers, with a progress bar.

    Args:
        load: Its name.
        prompts: In order.
        servers: By policy.
        vocabulary: Token ids that the model knows.
        budget: Seconds after which no further request is sent.
        progress: A bar is added to it.

    Raises:
        ServerError: Answers and metrics of a server contradict each other.
        aiohttp.ClientError: A server went away.
    """
    bar = progress.add_task(load, total=1.0)

    def advance(answers: dict[str, list[Answer]], seconds: float) -> None:
        count = len(next(iter(answers.values())))
        rates = ", ".join(
            f"{policy} {compare.hit_rate(compare.arrays(so_far)):.1%}"
            for policy, so_far in answers.items()
        )
        progress.update(
            bar,
            completed=max(count / len(prompts), min(seconds / budget, 1)),
            description=f"{load}: {count} requests, hits: {rates}",
        )

    before = {policy: server.counters() for policy, server in servers.items()}
    urls = {policy: server.url for policy, server in servers.items()}
    answers = asyncio.run(replay(urls, prompts, load, vocabulary, budget, advance))
    progress.update(bar, completed=1.0)
    runs = {}
    for policy, server in servers.items():
        counted = {
            name: value - before[policy].get(name, 0)
            for name, value in server.counters().items()
        }
        check(policy, answers[policy], counted)
        runs[policy] = Run(answers[policy], counted.get(EVICTIONS))
    return runs


def check(policy: str, answers: list[Answer], counted: dict[str, float]) -> None:
    """A server's metrics and its answers must say the same.

    Raises:
        ServerError: They do not; nothing in the table could be believed.
    """
    asked = sum(answer.prompt_tokens for answer in answers)
    hits = sum(answer.cached_tokens for answer in answers)
    if (counted[QUERIES], counted[HITS]) != (asked, hits):
        raise ServerError(
            f"{policy}: /metrics counted {counted[HITS]:g} of {counted[QUERIES]:g} "
            f"tokens as hits, the answers say {hits} of {asked}"
        )


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="demo.py", description="The same traffic on two eviction policies."
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="the model's folder")
    parser.add_argument(
        "--trace", type=Path, default=TRACE, help="a trace in Mooncake's format"
    )
    parser.add_argument(
        "--policies",
        default=",".join(POLICIES),
        help="two policies, with a comma between",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help="for everything; the replay stops in time (default: %(default)g)",
    )
    arguments = parser.parse_args(argv)
    arguments.policies = arguments.policies.split(",")
    if len(set(arguments.policies)) != 2:
        parser.error("--policies needs two different policies, as in lru,s3fifo")
    if not 0 < arguments.minutes < 1440:
        parser.error(f"--minutes {arguments.minutes:g}: must be above 0, at most a day")
    return arguments


def demonstrate(arguments: argparse.Namespace, console: Console) -> None:
    """Runs both policies and prints what came out.

    Raises:
        ServerError: See ``start_servers`` and ``replay_load``.
        aiohttp.ClientError: See ``replay_load``.
    """
    begin = time.monotonic()
    vocabulary = vocabulary_size(arguments.model)
    source, loads = load_traffic(arguments.trace)
    console.print(f"{source}, lengths divided by {SCALE}, one request at a time")
    for name, prompts in loads.items():
        console.print(describe(name, prompts))
    everything = list(itertools.chain.from_iterable(loads.values()))
    longest = max(len(prompt.blocks) * BLOCK + prompt.tail for prompt in everything)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    runs = {}
    with ExitStack() as stack, Progress(*columns, console=console) as progress:
        bar = progress.add_task("starting both servers", total=None)
        servers = start_servers(arguments.policies, arguments.model, longest, stack)
        warm_up = [Prompt((), BLOCK // 2)] * 4
        urls = {policy: server.url for policy, server in servers.items()}
        asyncio.run(
            replay(
                urls, warm_up, "warm-up", vocabulary, START_TIMEOUT_S, lambda *_: None
            )
        )
        progress.update(bar, description="both servers started", total=1, completed=1)
        left = arguments.minutes * 60 - RESERVE_S - (time.monotonic() - begin)
        for name, prompts in loads.items():
            budget = max(left, MIN_REPLAY_S) * SHARES[name]
            runs[name] = replay_load(
                name, prompts, servers, vocabulary, budget, progress
            )
    for name, by_policy in runs.items():
        show(name, by_policy, console)
    console.print(FOOTNOTE)
    console.print(f"Took {time.monotonic() - begin:.0f} s.")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    arguments = parse_arguments(argv)
    # So that whoever ends this ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        demonstrate(arguments, Console())
    except (ServerError, aiohttp.ClientError, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
