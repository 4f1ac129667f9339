# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`LLM(eviction_policy=..., eviction_config=...)` and the `CacheConfig` below it."""

from typing import Any

import pytest
from vllm.config import CacheConfig

from tests.engine.engine_process import EngineProcess
from tests.engine.serving import Setup, build, error_of

#: What `LLM` is given, and the line that the error must have.
WRONG = {
    "unknown policy": (
        {"eviction_policy": "s3fif0"},
        "Unknown eviction policy 's3fif0': choose from",
    ),
    "out of range": (
        {"eviction_policy": "s3fifo", "eviction_config": {"small_ratio": 1.5}},
        (
            "eviction_config.small_ratio is 1.5: "
            "must be a number, more than 0 and less than 1."
        ),
    ),
    "wrong type": (
        {"eviction_policy": "s3fifo", "eviction_config": {"promotion": "two"}},
        (
            "eviction_config.promotion is 'two': "
            "must be a whole number, at least 1 and at most 3."
        ),
    ),
    "of another policy": (
        {"eviction_policy": "sieve", "eviction_config": {"small_ratio": 0.2}},
        (
            "Eviction policy 'sieve' has no parameter 'small_ratio': it takes no "
            "parameters. 'small_ratio' is a parameter of s3fifo, partial-compute."
        ),
    ),
    "misspelt": (
        {"eviction_policy": "s3fifo", "eviction_config": {"smal_ratio": 0.2}},
        (
            "Eviction policy 's3fifo' has no parameter 'smal_ratio': it takes "
            "small_ratio, ghost_ratio, promotion. Did you mean 'small_ratio'?"
        ),
    ),
    "of a policy in Python": (
        {
            "eviction_policy": "test-fails-in-admit",
            "eviction_config": {"good_calls": -1},
        },
        "eviction_config.good_calls is -1: must be a whole number, at least 0.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_a_value_error_with_one_line_of_ours(
    name: str, engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    settings, text = WRONG[name]
    kind, message = engines.run(error_of, setups["llama"], settings)
    assert kind is not None, "no error"
    assert issubclass(kind, ValueError)
    (line,) = [line for line in message.splitlines() if text in line]
    if name == "unknown policy":
        assert line.count("Did you mean 's3fifo'?") == 1


def test_parameters_reach_the_policy(
    engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    settings = {
        "eviction_policy": "s3fifo",
        "eviction_config": {"small_ratio": 0.25, "promotion": 2},
    }
    built = engines.run(build, setups["llama"], settings)
    assert built.queue == "PolicyFreeQueue"
    (line,) = built.lines("INFO", "eviction policy: s3fifo")
    assert "small_ratio" in line and "0.25" in line and "promotion" in line


@pytest.mark.parametrize("ignored", ["s3fifo", "adaptive"])
def test_without_prefix_caching_a_policy_is_one_warning_and_is_ignored(
    ignored: str, engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    settings = {"eviction_policy": ignored, "enable_prefix_caching": False}
    built = engines.run(build, setups["llama"], settings)
    assert built.queue == "FreeKVCacheBlockQueue"
    (line,) = built.lines("WARNING", "viction")
    assert f"--eviction-policy {ignored} is ignored" in line
    assert not built.lines("ERROR", "")


def test_a_policy_evicts_when_statistics_are_off(
    engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    """They are off by default in `LLM`, and then the core makes none."""
    settings = {"eviction_policy": "s3fifo", "disable_log_stats": True}
    built = engines.run(build, setups["llama"], settings)
    assert built.evictions
    assert sum(answer.num_cached for answer in built.answers["floods"]) > 0


CONFIGS: list[dict[str, Any]] = [
    {"eviction_policy": "s3fifo"},
    {"eviction_policy": "s3fifo", "eviction_config": {"small_ratio": 0.3}},
    {"eviction_policy": "adaptive", "eviction_window": 900.0},
]


@pytest.mark.parametrize("config", CONFIGS)
def test_compiled_code_does_not_depend_on_eviction(config: dict[str, Any]) -> None:
    plain = CacheConfig(block_size=32)
    assert CacheConfig(block_size=32, **config).compute_hash() == plain.compute_hash()
    other = CacheConfig(block_size=32, cache_dtype="fp8")
    assert other.compute_hash() != plain.compute_hash()


@pytest.mark.parametrize("config", CONFIGS)
def test_parameters_and_paths_are_no_labels(config: dict[str, Any]) -> None:
    labels = CacheConfig(block_size=32, **config).metrics_info()
    assert labels["eviction_policy"] == config["eviction_policy"]
    assert not {"eviction_config", "eviction_trace_file"} & labels.keys()
    assert "small_ratio" not in str(labels)
