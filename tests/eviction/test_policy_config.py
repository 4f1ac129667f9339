# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`--eviction-config`: typed, in range, of the policy that it is given with.

A wrong one is answered with one line: the value, what is allowed, the nearest name.
"""

import argparse
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Interval, Lt

from vllm.v1.core.eviction import config as eviction_config
from vllm.v1.core.eviction.config import (
    HOLE_FILLING,
    add_eviction_args,
    check_eviction_args,
    parse_config,
    public_info,
    validate_eviction,
)
from vllm.v1.core.eviction.policy import Fifo
from vllm.v1.core.eviction.registry import (
    S3FIFOConfig,
    policy_names,
    register_policy,
    unregister_policy,
)


@dataclass
class OddConfig:
    """Of a policy of someone's own: all kinds of parameters."""

    depth: Annotated[int, Ge(2), Lt(9)] = 3
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    strict: bool = False
    mode: Literal["fast", "exact"] = "fast"


class OddPolicy(Fifo):
    Config = OddConfig


@dataclass
class NeedyConfig:
    path: str  # no default
    depth: int = 1


class NeedyPolicy(Fifo):
    Config = NeedyConfig


class PlainPolicy(Fifo):
    Config = dict


@pytest.fixture(autouse=True)
def _own_policies():
    own = {"odd": OddPolicy, "needy": NeedyPolicy, "plain": PlainPolicy}
    for name, policy in own.items():
        register_policy(name, __name__, policy.__name__)
    yield
    for name in own:
        unregister_policy(name)


def complaint(policy: str, config: Any) -> str:
    with pytest.raises(ValueError) as error:
        validate_eviction(policy, config)
    text = str(error.value)
    assert "\n" not in text
    return text


# ---- Right ones ----


def test_defaults_are_those_of_the_dataclass():
    assert parse_config("s3fifo", {}) == S3FIFOConfig(0.1, 0.9, 1)
    assert parse_config("odd", {}) == OddConfig()


def test_values_keep_their_types():
    parsed = parse_config("s3fifo", {"small_ratio": 0.2, "promotion": 2})
    assert parsed == S3FIFOConfig(small_ratio=0.2, promotion=2)
    assert parse_config("odd", {"strict": True, "mode": "exact"}).mode == "exact"


def test_a_whole_number_is_a_number():
    """`--eviction-config.ghost_ratio 2` comes as an integer."""
    assert parse_config("s3fifo", {"ghost_ratio": 2}).ghost_ratio == 2.0


def test_the_ends_of_a_range():
    parse_config("s3fifo", {"ghost_ratio": 0, "promotion": 3})
    parse_config("s3fifo", {"ghost_ratio": 8, "promotion": 1})


# ---- Wrong ones ----

A_SHARE = "must be a number, more than 0 and less than 1."
A_COUNT = "must be a whole number, at least 1 and at most 3."
A_FACTOR = "must be a number, at least 0 and at most 8."


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("small_ratio", value, A_SHARE) for value in (0, 1.0, -0.1, math.nan)),
        *(("small_ratio", value, A_SHARE) for value in ("0.2", True, None, [0.2])),
        *(("promotion", value, A_COUNT) for value in (0, 4, 1.5, 1.0, "1")),
        *(("ghost_ratio", value, A_FACTOR) for value in (-1, 8.1, math.inf)),
    ],
)
def test_out_of_range_or_of_another_type(name: str, value: Any, allowed: str):
    said = complaint("s3fifo", {name: value})
    assert said == f"eviction_config.{name} is {value!r}: {allowed}"


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        ({"errors": -1}, "a number, at least 0"),
        ({"errors": "1"}, "a number, at least 0"),
        ({"rule": "new"}, "one of discounted, window, paper"),
    ],
)
def test_what_is_none_by_default(config: dict[str, Any], allowed: str):
    ((name, value),) = config.items()
    said = complaint("adaptive", config)
    assert said == f"eviction_config.{name} is {value!r}: must be {allowed}."


@pytest.mark.parametrize("value", [0, -1, 1_000_001, 4.5, "4", True])
def test_a_chunk_is_a_number_of_blocks(value: Any):
    said = complaint("partial-compute", {"chunk": value})
    assert said == (
        f"eviction_config.chunk is {value!r}: must be a whole number, "
        "at least 1 and at most 1000000."
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"depth": 9}, "is 9: must be a whole number, at least 2 and less than 9."),
        ({"strict": 1}, "is 1: must be true or false."),
        ({"mode": "slow"}, "is 'slow': must be one of fast, exact."),
    ],
)
def test_the_same_for_a_policy_of_ones_own(config: dict[str, Any], said: str):
    assert complaint("odd", config).endswith(said)


def test_a_parameter_that_is_no_ones():
    text = complaint("s3fifo", {"smal_ratio": 0.2})
    assert "'s3fifo' has no parameter 'smal_ratio'" in text
    assert "it takes small_ratio, ghost_ratio, promotion." in text
    assert "Did you mean 'small_ratio'?" in text


def test_a_parameter_of_another_policy():
    text = complaint("sieve", {"small_ratio": 0.2})
    assert "'sieve' has no parameter 'small_ratio': it takes no parameters." in text
    assert "'small_ratio' is a parameter of s3fifo, partial-compute." in text


@pytest.mark.parametrize("config", [[], "small_ratio", 0.2, None])
def test_what_is_no_object(config: Any):
    assert complaint("s3fifo", config) == (
        f"eviction_config is {config!r}: must be a JSON object of parameters."
    )


def test_a_file_of_costs_is_one_for_all_candidates():
    validate_eviction("adaptive", {"cost_file": "x", "candidates": ["lru", "gdsf"]})
    candidates = ["lru", {"name": "gdsf", "cost_file": "x"}]
    assert complaint("adaptive", {"candidates": candidates}) == (
        "eviction_config.candidates gives 'gdsf' a cost_file: must be "
        "eviction_config.cost_file, one for all candidates."
    )
    text = complaint("lru", {"cost_file": "x"})
    assert "'cost_file' is a parameter of asymcache, gdsf, " in text


def test_a_parameter_without_a_default_must_be_given():
    assert complaint("needy", {}) == (
        "Eviction policy 'needy' needs eviction_config.path."
    )
    assert parse_config("needy", {"path": "x"}) == NeedyConfig("x")


def test_a_policy_whose_config_is_no_dataclass():
    assert "Config of eviction policy 'plain' is no dataclass" in complaint("plain", {})


def test_the_name_is_checked_too():
    assert "Did you mean 'sieve'?" in complaint("siev", {})


# ---- On the command line ----


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="vllm")
    text = {"help": "Help of upstream's making."}
    kwargs = {
        f"eviction_{name}": {**text, "default": default}
        for name, default in {
            "policy": "lru",
            "config": {},
            "window": None,
            "trace_file": None,
        }.items()
    }
    kwargs["hole_filling"] = {**text, "default": "auto", "choices": [*HOLE_FILLING]}
    add_eviction_args(made.add_argument_group("cache"), kwargs)
    return made


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What the command line says, at its end."""
    with pytest.raises(SystemExit) as stop:
        check_eviction_args(parser().parse_args(argv))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_right_flags_pass():
    config = '{"promotion": 2}'
    args = parser().parse_args(
        ["--eviction-policy", "s3fifo", "--eviction-config", config]
    )
    check_eviction_args(args)
    assert args.eviction_config == {"promotion": 2}
    check_eviction_args(argparse.Namespace())  # a command without these flags


def test_an_unknown_name_on_the_command_line(capsys):
    said = refused(capsys, "--eviction-policy", "s3fif")
    assert "Unknown eviction policy 's3fif'" in said


@pytest.mark.parametrize("text", ["{small_ratio: 0.2}", "", "{", "[1]", "0.2"])
def test_what_is_not_a_json_object(capsys, text: str):
    said = refused(capsys, "--eviction-policy", "s3fifo", "--eviction-config", text)
    assert "is not JSON" in said or "is not a JSON object" in said
    assert repr(text) in said and "--eviction-config.small_ratio 0.2" in said


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_numbers_that_only_python_takes_for_json(capsys, number: str):
    config = f'{{"ghost_ratio": {number}}}'
    said = refused(capsys, "--eviction-policy", "s3fifo", "--eviction-config", config)
    assert "must be a number, at least 0 and at most 8" in said


def test_a_config_for_another_policy(capsys):
    config = '{"small_ratio": 0.2}'
    said = refused(capsys, "--eviction-policy", "arc", "--eviction-config", config)
    assert said.startswith("vllm: error: Eviction policy 'arc' has no parameter")


def test_another_way_of_hole_filling(capsys):
    said = refused(capsys, "--hole-filling", "of")
    assert "'of'" in said and "one of auto, off, require" in said
    assert "Did you mean 'off'?" in said


def test_a_config_without_a_policy_is_one_for_lru(capsys):
    said = refused(capsys, "--eviction-config", '{"small_ratio": 0.2}')
    assert said.startswith("vllm: error: Eviction policy 'lru' has no parameter")


def test_a_policy_of_the_lab(capsys):
    name = "session-lru"
    said = refused(capsys, "--eviction-policy", name)
    assert f"Eviction policy {name!r} runs in the lab only" in said
    assert "s3fifo" in said
    candidates = f'{{"candidates": ["lru", "{name}"]}}'
    flags = ["--eviction-policy", "adaptive", "--eviction-config", candidates]
    assert f"{name!r}, which cannot be a shadow" in refused(capsys, *flags)


@pytest.mark.parametrize("name", ["random-compute", "partial-compute"])
def test_a_policy_that_leaves_holes_may_run_without_hole_filling(name: str):
    validate_eviction(name, {"samples": 4}, None)
    candidates = {"candidates": ["lru", name], "objective": "compute"}
    validate_eviction("adaptive", candidates, None)


def test_the_help_names_every_policy():
    text = " ".join(parser().format_help().split())
    for name in policy_names():
        assert name in text
    assert "Help of upstream's making." in text


def test_parameters_are_no_label_of_a_metric():
    info = {"block_size": "16", "eviction_policy": "s3fifo", "eviction_config": "{}"}
    assert public_info(info) == {"block_size": "16", "eviction_policy": "s3fifo"}


# ---- Before the engine ----


def test_validation_loads_neither_the_engine_nor_the_core():
    """A wrong flag is answered at once: `import torch` alone takes seconds. The
    package's parents are replaced by empty ones, as upstream's own import more."""
    overlay = Path(eviction_config.__file__).parents[3]
    program = f"""
import sys, types
for name, path in (("vllm", ""), ("vllm.v1", "v1"), ("vllm.v1.core", "v1/core")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{str(overlay)!r} + "/" + path]
from vllm.v1.core.eviction.config import validate_eviction
validate_eviction("s3fifo", {{"promotion": 2}})
loaded = [n for n in sys.modules if n.startswith("vllm.") and "eviction" not in n]
assert loaded == ["vllm.v1", "vllm.v1.core"], loaded
for heavy in ("torch", "transformers", "numpy", "vllm._eviction_C"):
    assert heavy not in sys.modules, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
