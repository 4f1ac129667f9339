# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A prompt whose holes are filled gets the answer of a computation from scratch.

Random weights of a real scale, float32, every set of missing blocks, what was in them
overwritten with noise. The measure is the error of an ordinary prefix hit, which is
computed in other chunks than the whole prompt, too.
"""

from collections.abc import Callable

import pytest

from tests.engine.engine_process import EngineProcess
from tests.engine.hole_serving import (
    BLOCK_SIZE,
    HoleReport,
    log_of_engine,
    serve_all_patterns,
    serve_with_noise,
)
from tests.engine.serving import Answer, Setup

FULL_BLOCKS = 6
CASES = {
    "one at a time": (1, {}),
    "three at once": (3, {}),
    "in chunks": (2, {"max_num_batched_tokens": 96}),
    "asynchronous": (2, {"async_scheduling": True}),
    "speculated by n-grams": (
        2,
        {
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_max": 2,
            }
        },
    ),
}


@pytest.fixture(scope="session")
def reports(
    engines: EngineProcess, setups: dict[str, Setup]
) -> Callable[[str], HoleReport]:
    known: dict[str, HoleReport] = {}

    def report(case: str) -> HoleReport:
        if case not in known:
            at_once, settings = CASES[case]
            known[case] = engines.run(
                serve_all_patterns,
                setups["llama"].model,
                FULL_BLOCKS,
                at_once,
                settings,
            )
            if "speculative_config" in settings:
                # It brings numba, and with that loaded upstream's search for kernels
                # to override, over all modules, fails in every engine after it.
                engines.stop()
        return known[case]

    return report


def error(answer: Answer, cold: Answer) -> float:
    return max(abs(a - b) for a, b in zip(answer.logprobs, cold.logprobs, strict=True))


def is_prefix_hit(pattern: tuple[int, ...]) -> bool:
    """Nothing is cached behind the first missing block."""
    return pattern == tuple(range(FULL_BLOCKS - len(pattern), FULL_BLOCKS))


@pytest.mark.parametrize("case", CASES)
def test_every_set_of_holes_gives_the_tokens_of_a_cold_prompt(
    case: str, reports: Callable[[str], HoleReport]
) -> None:
    report = reports(case)
    assert len(report.filled) == 2**FULL_BLOCKS
    for pattern, answers in report.filled.items():
        assert [a.tokens for a in answers] == [a.tokens for a in report.cold], pattern


@pytest.mark.parametrize("case", CASES)
def test_the_error_is_that_of_a_prefix_hit(
    case: str, reports: Callable[[str], HoleReport]
) -> None:
    report = reports(case)
    errors: dict[bool, float] = {True: 0.0, False: 0.0}
    for pattern, answers in report.filled.items():
        worst = max(map(error, answers, report.cold))
        plain = is_prefix_hit(pattern)
        errors[plain] = max(errors[plain], worst)
    # Float32 rounding: sums in another order, for both alike.
    assert errors[False] <= max(4 * errors[True], 1e-4)


def test_all_but_the_holes_and_the_tail_was_cached(
    reports: Callable[[str], HoleReport],
) -> None:
    for pattern, (answer,) in reports("one at a time").filled.items():
        assert answer.num_cached == (FULL_BLOCKS - len(pattern)) * BLOCK_SIZE


def test_a_hole_that_stays_open_would_show(
    engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    cold, noisy = engines.run(
        serve_with_noise, setups["llama"].model, FULL_BLOCKS, FULL_BLOCKS - 2
    )
    assert noisy.num_cached == (FULL_BLOCKS - 1) * BLOCK_SIZE
    assert noisy.tokens != cold.tokens


def test_where_it_cannot_be_the_engine_says_so_and_serves(
    engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    log = engines.run(
        log_of_engine,
        setups["hybrid"].model,
        {"eviction_policy": "partial-compute", "num_gpu_blocks_override": 280},
    )
    (line,) = (text for level, text in log if "Holes in cached prefixes" in text)
    assert "several KV-cache groups" in line


def test_where_it_is_required_and_cannot_be_the_engine_does_not_start(
    engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    settings = {"hole_filling": "require", "num_gpu_blocks_override": 280}
    with pytest.raises(RuntimeError, match="--hole-filling require: not with several"):
        engines.run(log_of_engine, setups["hybrid"].model, settings)
