# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Runs requests on an engine, each at its time, in a process of its own.

A process of its own, because an engine changes the process that it runs in, and
because what one policy leaves behind must not meet the next. Requests come when they
are due, whether the engine keeps up or not, and a time to first token counts from when
a request was due: an engine that falls behind does not get fewer requests for it.

Several engines can run at the same time, each on CPUs of its own: what the machine does
to one of them it does to all.
"""

import asyncio
import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prefix_prompts import Ask
from tqdm import tqdm

COUNTERS = {
    "preemptions": "vllm:num_preemptions",
    "evictions": "vllm:prefix_cache_evictions",
    "switches": "vllm:prefix_cache_policy_switches",
}
"""What is read from the engine's metrics; an engine has not all of them."""


@dataclass
class Run:
    """What one engine did.

    Attributes:
        ttft: float64 (requests,); seconds from when a request was due.
        latency: float64 (requests,); seconds, the same to its last token.
        prompt: int64 (requests,); tokens.
        cached: int64 (requests,); of these, found in the prefix cache.
        output: int64 (requests,); tokens.
        seconds: From the first request due to the last token.
        lateness: Seconds that a request was sent after it was due, at most.
        counters: See `COUNTERS`.

    """

    ttft: NDArray[np.float64]
    latency: NDArray[np.float64]
    prompt: NDArray[np.int64]
    cached: NDArray[np.int64]
    output: NDArray[np.int64]
    seconds: float
    lateness: float
    counters: dict[str, float] = field(default_factory=dict)


class EngineFailure(Exception):
    """An engine did not start, or did not serve to the end."""


def run_apart(engine_args: Any, asks: list[Ask], title: str) -> Run:
    """Run requests on a new engine in a new process.

    Args:
        engine_args: `AsyncEngineArgs`.
        asks: In order of their times.
        title: Of the progress bar.

    Raises:
        EngineFailure: It did not start, or did not serve to the end; one line. What it
            said of it itself is on standard error.

    """
    (run,) = _run_in_processes([engine_args], asks, [title], [()])
    return run


def run_side_by_side(
    engines: Sequence[Any], asks: list[Ask], titles: Sequence[str]
) -> list[Run]:
    """Run the same requests on several new engines at the same time.

    Each has as many of this process's CPUs; the requests start when all are ready.

    Args:
        engines: `AsyncEngineArgs` of each, on the CPU backend; as many as there are
            CPUs at most.
        asks: In order of their times.
        titles: Of the progress bars.

    Raises:
        EngineFailure: As of `run_apart`, of any of them.

    """
    cpus = sorted(os.sched_getaffinity(0))
    each = len(cpus) // len(engines)
    shares = [tuple(cpus[i * each : (i + 1) * each]) for i in range(len(engines))]
    return _run_in_processes(engines, asks, titles, shares)


def _run_in_processes(
    engines: Sequence[Any],
    asks: list[Ask],
    titles: Sequence[str],
    cpus: Sequence[tuple[int, ...]],
) -> list[Run]:
    """One process each, on the CPUs given; on any where none are."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(len(engines))
    with ExitStack() as stack:
        pools = [
            stack.enter_context(
                ProcessPoolExecutor(1, context, _settle, (start, of_one))
            )
            for of_one in cpus
        ]
        try:
            runs = [
                pool.submit(_run, engine, asks, title)
                for pool, engine, title in zip(pools, engines, titles, strict=True)
            ]
            ended, _ = wait(runs, return_when=FIRST_EXCEPTION)
            failed = [run for run in ended if run.exception() is not None]
            if failed:
                start.abort()  # the others must not wait for it
                failed[0].result()
            return [run.result() for run in runs]
        except BrokenProcessPool:
            start.abort()
            raise EngineFailure("its process was ended from outside.") from None
        except KeyboardInterrupt:
            for pool in pools:
                for process in list(pool._processes.values()):
                    process.terminate()
            raise


_start: threading.Barrier
"""In the process of an engine: all wait here until each is ready."""


def _settle(start: threading.Barrier, cpus: tuple[int, ...]) -> None:
    global _start
    _start = start
    if cpus:
        os.sched_setaffinity(0, cpus)
        # By itself the backend leaves out siblings of a core, and one for others.
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cpus))


def _run(engine_args: Any, asks: list[Ask], title: str) -> Run:
    try:
        return asyncio.run(_serve(engine_args, asks, title))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineFailure(reason[:400]) from None


async def _serve(engine_args: Any, asks: list[Ask], title: str) -> Run:
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    # As `vllm serve`: how much a step computes by default depends on who asks.
    engine = AsyncLLM.from_engine_args(
        engine_args, usage_context=UsageContext.OPENAI_API_SERVER
    )
    try:
        await _warm_up(engine, asks)
        await asyncio.to_thread(_start.wait)
        return await _replay(engine, asks, title)
    finally:
        engine.shutdown()


async def _warm_up(engine: Any, asks: list[Ask]) -> None:
    """Have everything compiled and allocated; leaves nothing in the cache.

    Raises:
        RuntimeError: It does.

    """
    longest = max(asks, key=lambda ask: len(ask.tokens)).tokens
    for tokens in (longest[::-1], longest[: len(longest) // 2 + 1][::-1]):
        await _ask(engine, Ask(0.0, tokens, 2), time.perf_counter())
    if not await engine.reset_prefix_cache():
        raise RuntimeError("The prefix cache cannot be reset.")


async def _replay(engine: Any, asks: list[Ask], title: str) -> Run:
    before = _counters()
    start = time.perf_counter()
    lateness = 0.0
    tasks = []
    with tqdm(total=len(asks), desc=title, disable=None) as bar:
        for ask in asks:
            due = start + ask.due
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            lateness = max(lateness, time.perf_counter() - due)
            task = asyncio.create_task(_ask(engine, ask, due))
            task.add_done_callback(lambda _: bar.update())
            tasks.append(task)
        answers = await asyncio.gather(*tasks)
    after = _counters()
    ttft, latency, cached, output = (
        np.array(column) for column in zip(*answers, strict=True)
    )
    dues = np.array([ask.due for ask in asks])
    return Run(
        ttft=ttft,
        latency=latency,
        prompt=np.array([len(ask.tokens) for ask in asks]),
        cached=cached,
        output=output,
        seconds=float((dues + latency).max() - dues[0]),
        lateness=lateness,
        counters={name: after[name] - before.get(name, 0) for name in after},
    )


async def _ask(engine: Any, ask: Ask, due: float) -> tuple[float, float, int, int]:
    """Time to first token and to the last, tokens that were cached and generated."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    from vllm import TokensPrompt

    parameters = SamplingParams(
        temperature=0.0,
        max_tokens=ask.output,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    first, cached, generated = 0.0, 0, 0
    prompt = TokensPrompt(prompt_token_ids=ask.tokens.tolist())
    async for output in engine.generate(prompt, parameters, uuid.uuid4().hex):
        if not first:
            first = time.perf_counter()
            cached = output.num_cached_tokens or 0
        generated += len(output.outputs[0].token_ids)
    return first - due, time.perf_counter() - due, cached, generated


def _counters() -> dict[str, float]:
    """Sums over all labels, in this process, where the front end keeps metrics."""
    from prometheus_client import REGISTRY

    values: dict[str, float] = {}
    for metric in REGISTRY.collect():
        for name, known in COUNTERS.items():
            if metric.name == known:
                values[name] = sum(
                    s.value for s in metric.samples if s.name == known + "_total"
                )
    return values
