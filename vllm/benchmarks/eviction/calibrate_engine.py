# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Calibrates an engine with a model: from its arguments to a file of costs.

The engine runs in a process of its own, because it changes the process that it runs
in. Where no --max-num-batched-tokens is given a step computes a quarter of the longest
prompt at most, so that there are prompts of one step and of several: that tells what a
step costs from what a request does.
"""

import argparse
import logging
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.calibrate import compared, measure
from vllm.benchmarks.eviction.prefill_law import (
    Attention,
    Law,
    Point,
    attention_of,
    fit,
)
from vllm.benchmarks.eviction.tables import check_file, check_outputs, write_table
from vllm.v1.core.eviction.cost_file import Calibration, write_calibration
from vllm.v1.core.eviction.model_flops import LoadedConfig, flops_of

if TYPE_CHECKING:
    from vllm.engine.arg_utils import EngineArgs

_BUDGET = 2048  # tokens in a step, at most, unless told
_LOG_LEVEL = "VLLM_LOGGING_LEVEL"


@dataclass(frozen=True)
class Measured:
    """What an engine did, and which one it was.

    Attributes:
        points: Of `measure`.
        device: Its name.
        dtype: Of the model.
        block_size: Tokens.

    """

    points: list[Point]
    device: str
    dtype: str
    block_size: int


def calibrate_file(args: argparse.Namespace) -> None:
    """Measure, fit, print, and write the file.

    Raises:
        ValueError: One line.
        OSError: The file cannot be written.

    """
    if args.repeats < 1:
        raise ValueError(f"--repeats is {args.repeats}: must be 1 or more.")
    out = args.out or f"{Path(os.path.abspath(args.model)).name}.cost.json"
    check_file("--out", out)
    check_outputs(args)
    with _quiet():
        engine, attention = _checked(_engine_args(args))
        measured = _measure_apart(engine, args.repeats)
    law = fit(measured.points, attention)
    found = _calibration(args.model, measured, law)
    rows = compared(measured.points, law)
    write_table(rows, args, f"{found.title}, {found.dtype}: to the first token")
    write_calibration(found, out)
    if "-" not in (args.json, args.csv):
        print(_in_words(found, law, rows))
        print(
            f"In the engine: --eviction-config.cost_file {out}, in the lab: "
            f"--cost {out}."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Only errors are logged, unless it is told: an engine logs a page."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    logger = logging.getLogger("vllm")
    level = logger.level
    os.environ[_LOG_LEVEL] = "ERROR"  # of the processes that start meanwhile
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]
        logger.setLevel(level)


def _engine_args(args: argparse.Namespace) -> "EngineArgs":
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def refuse(message: str) -> NoReturn:
        raise ValueError(f"{message[:1].lower()}{message[1:]}.")

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parser.error = refuse  # its own prints pages of usage before
    return EngineArgs.from_cli_args(
        parser.parse_args(["--model", args.model, *args.engine_words])
    )


def _checked(given: "EngineArgs") -> "tuple[EngineArgs, Attention]":
    """The engine to measure, and where its model's layers look."""
    if given.enable_prefix_caching is False:
        raise ValueError("prefix caching is off: depths cannot be measured without it.")
    try:
        model = given.create_model_config()
    except Exception as error:
        (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"--model {given.model}: {reason}") from None
    budget = given.max_num_batched_tokens
    if budget is None and given.enable_chunked_prefill is not False:
        budget = min(_BUDGET, model.max_model_len // 4)
        budget = max(1, budget, given.max_num_seqs or 0)
    try:
        attention = attention_of(flops_of(LoadedConfig(model.hf_text_config)))
    except Exception:  # a config may hold anything
        attention = Attention()
    engine = replace(
        given,
        max_num_batched_tokens=budget,
        enable_prefix_caching=True,
        disable_log_stats=True,
        eviction_policy="lru",
        eviction_config={},
        eviction_window=None,
        eviction_trace_file=None,
    )
    return engine, attention


def _measure_apart(engine_args: "EngineArgs", repeats: int) -> Measured:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_measure, engine_args, repeats).result()
        except BrokenProcessPool:
            raise ValueError("the engine's process was ended from outside.") from None
        except KeyboardInterrupt:
            for process in list(pool._processes.values()):
                process.terminate()
            raise


def _measure(engine_args: "EngineArgs", repeats: int) -> Measured:
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    try:
        engine = LLMEngine.from_engine_args(engine_args, UsageContext.OPENAI_API_SERVER)
    except Exception as error:
        (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"the engine did not start: {reason}") from None
    try:
        if not engine.vllm_config.cache_config.enable_prefix_caching:
            raise ValueError("prefix caching is off: the model does not support it.")
        alone = _Alone(engine)
        return Measured(
            measure(alone, repeats),
            _device_name(),
            str(engine.model_config.dtype).removeprefix("torch."),
            alone.block_size,
        )
    finally:
        engine.engine_core.shutdown()


class _Alone:
    """An engine that serves one prompt at a time; see `calibrate.Prefill`.

    Args:
        engine: vLLM's `LLMEngine`.

    """

    def __init__(self, engine: Any):
        from vllm.sampling_params import SamplingParams

        self._engine = engine
        self._asked = 0
        self._one_token = SamplingParams(
            temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False
        )
        config = engine.vllm_config
        cache, scheduler = config.cache_config, config.scheduler_config
        self.block_size = int(cache.block_size)
        room = cache.kv_cache_size_tokens or cache.num_gpu_blocks * self.block_size
        # One block is the engine's own, and the answer needs one.
        room -= 2 * self.block_size
        self.longest = min(config.model_config.max_model_len - 1, room)
        self.budget = scheduler.max_num_batched_tokens
        if scheduler.long_prefill_token_threshold:
            self.budget = min(self.budget, scheduler.long_prefill_token_threshold)
        self.vocabulary = config.model_config.get_vocab_size()

    def ask(self, tokens: NDArray[np.int32]) -> tuple[float, int]:
        from vllm import TokensPrompt

        prompt = TokensPrompt(prompt_token_ids=tokens.tolist())
        self._asked += 1
        start = time.perf_counter()
        self._engine.add_request(f"calibrate-{self._asked}", prompt, self._one_token)
        seconds, cached = 0.0, 0
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                seconds = time.perf_counter() - start
                cached = output.num_cached_tokens or 0
        return seconds, cached


def _device_name() -> str:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return current_platform.get_device_name()
    import cpuinfo  # of vLLM's own requirements

    brand = cpuinfo.get_cpu_info().get("brand_raw", "CPU")
    return f"{brand}, {len(os.sched_getaffinity(0))} cores"


def _calibration(model: str, measured: Measured, law: Law) -> Calibration:
    return Calibration(
        model=model,
        device=measured.device,
        dtype=measured.dtype,
        block_size=measured.block_size,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        request_seconds=law.request,
        step_seconds=law.step,
        token_seconds=law.token,
        per_token=law.per_token,
        per_window_token=law.per_window_token,
        window=law.attention.window,
        points=tuple(vars(point) for point in measured.points),
    )


def _in_words(found: Calibration, law: Law, rows: list[dict[str, float]]) -> str:
    errors = [abs(row["error_percent"]) for row in rows]
    window = f" + {found.per_window_token:.3g} up to {found.window:,}"
    return (
        f"A request costs {1e3 * law.request:.3g} ms, a step {1e3 * law.step:.3g} ms, "
        f"a token {1e6 * law.token:.3g} us, and {1e9 * law.look:.3g} ns more for each "
        "token that it looks at.\n"
        f"So a block costs 1 + {found.per_token:.3g} a token of depth"
        f"{window if found.window else ''}, and a further step as much as "
        f"{found.step_tokens:,.0f} tokens at depth zero ({found.step_blocks:.3g} "
        "blocks).\n"
        f"The fit is off by {median(errors):.1f} % (median), {max(errors):.1f} % at "
        "most."
    )
