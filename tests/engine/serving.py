# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the engine's process does: start an engine, serve, and report.

The functions here are jobs of `EngineProcess`. vLLM is imported in them and not
above, because the session that only names them must not load it.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.engine.tiny_model import ENGINE_SETTINGS
from tests.engine.traffic import Prompt, Scale, Traffic

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler

    from vllm import LLM


@dataclass(frozen=True)
class Answer:
    """What one request got.

    Attributes:
        tokens: Greedily sampled.
        logprobs: Of those tokens.
        margins: By how much, in log-probability, each led the second best.
        num_cached: Prompt tokens that were found in the prefix cache.

    """

    tokens: list[int]
    logprobs: list[float]
    margins: list[float]
    num_cached: int


@dataclass
class Report:
    """What one engine did.

    Attributes:
        answers: Of each phase, in the order of the requests.
        metrics: Prometheus samples by name and, if there is one, policy.
        preemptions: Requests that were preempted in the phase of that name.
        queue: Class of the pool's free queue.
        evictions: Blocks that the queue of a policy of ours evicted; None under
            vLLM's own queue.
        failure: Why the policy was given up; empty if it was not.
        log: Level and text of each line that the engine logged.

    """

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    preemptions: float = 0
    queue: str = ""
    evictions: int | None = None
    failure: str = ""
    log: list[tuple[str, str]] = field(default_factory=list)

    @property
    def num_hit_tokens(self) -> int:
        """Prompt tokens that were found in the prefix cache."""
        return sum(
            answer.num_cached for answers in self.answers.values() for answer in answers
        )

    def lines(self, level: str, about: str) -> list[str]:
        """Lines of a level that hold a text."""
        return [text for at, text in self.log if at == level and about in text]


@dataclass(frozen=True)
class Setup:
    """A model, a pool and prompts that fit each other.

    Attributes:
        model: Folder of the model.
        scale: Lengths of the prompts.
        num_blocks: Of the pool, with the null block.
        num_batches: Of prompts.
        at_once: Prompts of a batch that are served together.
        long_outputs: Number of requests and of tokens that each asks for; together
            they need more blocks than the pool has.

    """

    model: str
    scale: Scale
    num_blocks: int
    num_batches: int
    at_once: int
    long_outputs: tuple[int, int]


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@contextmanager
def logged() -> Iterator[list[tuple[str, str]]]:
    """Collect level and text of what the engine logs."""
    import vllm.logger

    handler = _Log()
    logger = logging.getLogger("vllm.v1")
    configure = vllm.logger.dictConfig

    def configure_and_listen(config: dict[str, Any]) -> None:
        # An engine configures logging as it starts, which drops all handlers.
        configure(config)
        logger.addHandler(handler)

    vllm.logger.dictConfig = configure_and_listen
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        vllm.logger.dictConfig = configure
        logger.removeHandler(handler)


@contextmanager
def engine(model: str, **settings: Any) -> Iterator["LLM"]:
    """Start an engine with a tiny model, and end it.

    Args:
        model: Folder of the model.
        settings: Of `LLM`, over those of `ENGINE_SETTINGS`.

    """
    from vllm.distributed import cleanup_dist_env_and_memory

    from vllm import LLM

    llm = LLM(model=model, **{**ENGINE_SETTINGS, **settings})
    try:
        yield llm
    finally:
        # Each of the three collections goes through all of vLLM's objects, which
        # takes longer than serving.
        with mock.patch("gc.collect"):
            llm.llm_engine.engine_core.shutdown()
            cleanup_dist_env_and_memory()
        del llm
        gc.freeze()


def scheduler_of(llm: "LLM") -> "Scheduler":
    """The scheduler, which is in this process."""
    core: Any = llm.llm_engine.engine_core
    return core.engine_core.scheduler


def ask(llm: "LLM", prompts: list[Prompt], num_tokens: int) -> list[Answer]:
    """Serve prompts together; each gets as many tokens, whatever they are."""
    from vllm import SamplingParams, TokensPrompt

    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts],
        SamplingParams(
            temperature=0, max_tokens=num_tokens, ignore_eos=True, logprobs=2
        ),
        use_tqdm=False,
    )
    return [_answer(output) for output in outputs]


def _answer(output: Any) -> Answer:
    completion = output.outputs[0]
    tokens = list(completion.token_ids)
    logprobs, margins = [], []
    for token, best in zip(tokens, completion.logprobs, strict=True):
        ranked = sorted((entry.logprob for entry in best.values()), reverse=True)
        logprobs.append(best[token].logprob)
        margins.append(ranked[0] - ranked[1])
    return Answer(tokens, logprobs, margins, output.num_cached_tokens)


def check_idle(llm: "LLM") -> None:
    """No request is running: every block must be free, once, and found so."""
    from vllm.v1.core.eviction.free_queue import PolicyFreeQueue

    scheduler = scheduler_of(llm)
    assert not scheduler.running and not scheduler.waiting
    pool = scheduler.kv_cache_manager.block_pool
    queue = pool.free_block_queue
    free = sorted(block.block_id for block in queue.get_all_free_blocks())
    assert free == list(range(1, pool.num_gpu_blocks)), free  # 0 is the null block
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert all(block.ref_cnt == 0 for block in pool.blocks if not block.is_null)
    if isinstance(queue, PolicyFreeQueue):
        queue.check()
    hooks: Any = scheduler.eviction
    if hooks is not None:
        assert not hooks._admitted, "requests are over, but not for the policy"


def run_requests(
    llm: "LLM",
    prompts: list[Prompt],
    num_tokens: int,
    after_steps: int,
    intervene: Any,
) -> list[Answer | None]:
    """Serve prompts step by step, and do something in the middle.

    Args:
        llm: Idle.
        prompts: Start together.
        num_tokens: For each.
        after_steps: Engine steps before `intervene(engine, request_ids)`.
        intervene: May abort requests.

    Returns:
        The answers; None for a request that was aborted.

    """
    from vllm import SamplingParams, TokensPrompt

    llm_engine = llm.llm_engine
    ids = [f"step-by-step-{n}" for n in range(len(prompts))]
    for request_id, prompt in zip(ids, prompts, strict=True):
        llm_engine.add_request(
            request_id,
            TokensPrompt(prompt_token_ids=prompt),
            SamplingParams(
                temperature=0, max_tokens=num_tokens, ignore_eos=True, logprobs=2
            ),
        )
    answers: dict[str, Answer] = {}
    steps = 0
    while llm_engine.has_unfinished_requests():
        if steps == after_steps:
            intervene(llm_engine, ids)
        steps += 1
        for output in llm_engine.step():
            if output.finished and output.outputs[0].finish_reason != "abort":
                answers[output.request_id] = _answer(output)
    assert steps > after_steps, "the requests were over before anything happened"
    return [answers.get(request_id) for request_id in ids]


def metrics_of(llm: "LLM") -> dict[str, float]:
    """Counters and gauges; a sample with a policy is ``name/policy``."""
    samples: dict[str, float] = {}
    for metric in llm.get_metrics():
        policy = metric.labels.get("policy")
        name = f"{metric.name}/{policy}" if policy else metric.name
        value = getattr(metric, "value", None)
        if value is not None:
            samples[name] = value
    return samples


NUM_TOKENS = 8
LONGEST_CHAT = 400  # tokens


def _small(setup: Setup) -> dict[str, Any]:
    return {
        "num_gpu_blocks_override": setup.num_blocks,
        "max_num_batched_tokens": 128,  # so that prompts are cut into chunks
        "max_num_seqs": 6,
        "disable_log_stats": False,
    }


def serve(setup: Setup, settings: dict[str, Any]) -> Report:
    """Serve everything there is to serve, in phases.

    `floods`: batches of `Traffic`. `aborted`: half of the requests of a batch are
    aborted while they run. `reset`: two prefixes before the cache is reset, after
    it, and once more. `slept`: the same two after the engine slept, which empties the
    cache too. `reset while running`: the cache is reset under running requests, which
    start over. `preempted`: long outputs, more than fit into the pool.

    Args:
        setup: Model, pool and prompts.
        settings: Of `LLM`: the policy, or prefix caching off.

    """
    report = Report()
    with (
        logged() as report.log,
        engine(setup.model, **(_small(setup) | settings)) as llm,
    ):
        answers = report.answers
        traffic = Traffic(setup.scale)
        answers["floods"] = []
        for _ in range(setup.num_batches):
            prompts = traffic.batch()
            for start in range(0, len(prompts), setup.at_once):
                some = prompts[start : start + setup.at_once]
                answers["floods"] += ask(llm, some, NUM_TOKENS)
            traffic.answered(prompts[-1], answers["floods"][-1].tokens, LONGEST_CHAT)
            check_idle(llm)

        def abort_half(llm_engine: Any, ids: list[str]) -> None:
            llm_engine.abort_request(ids[::2])

        half = run_requests(llm, traffic.batch(), NUM_TOKENS, 3, abort_half)
        assert half[::2] == [None] * len(half[::2])
        answers["aborted"] = [answer for answer in half if answer is not None]
        check_idle(llm)

        first = [prefix + [0] for prefix in traffic.prefixes[:2]]
        answers["reset"] = ask(llm, first, NUM_TOKENS)
        assert llm.reset_prefix_cache()
        check_idle(llm)
        for _ in range(2):
            answers["reset"] += ask(llm, first, NUM_TOKENS)
        check_idle(llm)

        llm.sleep(level=1)
        llm.wake_up()
        answers["slept"] = ask(llm, first, NUM_TOKENS)
        check_idle(llm)

        def reset(llm_engine: Any, ids: list[str]) -> None:
            assert scheduler_of(llm).running
            assert llm_engine.reset_prefix_cache(reset_running_requests=True)

        whole = run_requests(llm, traffic.batch(), NUM_TOKENS, 5, reset)
        answers["reset while running"] = [a for a in whole if a is not None]
        assert len(answers["reset while running"]) == len(whole)
        check_idle(llm)

        many, long = setup.long_outputs
        prompts = [prefix + [n] for n, prefix in enumerate(traffic.prefixes[:many])]
        before = metrics_of(llm)["vllm:num_preemptions"]
        answers["preempted"] = ask(llm, prompts, long)
        report.preemptions = metrics_of(llm)["vllm:num_preemptions"] - before
        check_idle(llm)

        _report_queue(llm, report)
        report.metrics = metrics_of(llm)
    return report


def _report_queue(llm: "LLM", report: Report) -> None:
    queue: Any = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
    report.queue = type(queue).__name__
    report.evictions = getattr(queue, "evictions", None)
    report.failure = getattr(queue, "failure", "")


def serve_from_spoiled_blocks(setup: Setup) -> tuple[Answer, Answer]:
    """Serve one prompt twice; in between, all cached keys and values change.

    Returns:
        Both answers.

    """
    prompt = Traffic(setup.scale).prefixes[0] + [0]
    with engine(setup.model, **_small(setup)) as llm:
        (first,) = ask(llm, [prompt], NUM_TOKENS)
        core: Any = llm.llm_engine.engine_core
        runner = core.engine_core.model_executor.driver_worker.worker.model_runner
        for layer in runner.kv_caches:
            layer.add_(1.0)  # adds up where layers share a tensor
        (second,) = ask(llm, [prompt], NUM_TOKENS)
    return first, second


def build(setup: Setup, settings: dict[str, Any]) -> Report:
    """Start an engine, serve two batches, and report in the phase `floods`."""
    report = Report()
    with (
        logged() as report.log,
        engine(setup.model, **(_small(setup) | settings)) as llm,
    ):
        traffic = Traffic(setup.scale)
        report.answers["floods"] = []
        for _ in range(2):
            report.answers["floods"] += ask(llm, traffic.batch(), NUM_TOKENS)
        check_idle(llm)
        _report_queue(llm, report)
    return report


def error_of(
    setup: Setup, settings: dict[str, Any]
) -> tuple[type[Exception] | None, str]:
    """The type and message of what `LLM(...)` raises."""
    from vllm import LLM

    try:
        LLM(model=setup.model, **(ENGINE_SETTINGS | _small(setup) | settings))
    except Exception as error:
        # Pydantic's own class does not survive the way to another process.
        kind = ValueError if isinstance(error, ValueError) else type(error)
        return kind, str(error)
    return None, ""
