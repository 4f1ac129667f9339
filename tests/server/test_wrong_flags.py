# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A wrong flag is one line that says what is allowed, and exit status 2."""

from pathlib import Path

import pytest

from tests.engine.entry_points import PYTHON_FIFO
from tests.server.command_line import CommandLine, Outcome
from vllm.v1.core.eviction.registry import policy_names

pytestmark = pytest.mark.timeout(900)

POLICY, CONFIG = "--eviction-policy", "--eviction-config"
RATIO = "small_ratio is {}: must be a number, more than 0 and less than 1."

#: Flags, and what the line says: the value, what is allowed, and the nearest name.
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "unknown policy": (
        [POLICY, "nope"],
        ["Unknown eviction policy 'nope'", *policy_names(), PYTHON_FIFO],
    ),
    "misspelt policy": ([f"{POLICY}=s3fif0"], ["'s3fif0'", "Did you mean 's3fifo'?"]),
    "upper case": ([POLICY, "LRU"], ["Unknown eviction policy 'LRU'"]),
    "no policy": ([POLICY, ""], ["Unknown eviction policy ''"]),
    "out of range": (
        [POLICY, "s3fifo", CONFIG, '{"small_ratio": 1.5}'],
        [RATIO.format("1.5")],
    ),
    "out of range, dotted": (
        [POLICY, "s3fifo", f"{CONFIG}.small_ratio", "2"],
        [RATIO.format("2")],
    ),
    "not a number, dotted": (
        [POLICY, "s3fifo", f"{CONFIG}.small_ratio=much"],
        [RATIO.format("'much'")],
    ),
    "of another policy": (
        [POLICY, "sieve", CONFIG, '{"small_ratio": 0.2}'],
        ["'sieve' has no parameter 'small_ratio'", "is a parameter of s3fifo"],
    ),
    "of another policy, dotted": (
        [f"{CONFIG}.small_ratio", "0.2"],
        ["'lru' has no parameter 'small_ratio'", "is a parameter of s3fifo"],
    ),
    "misspelt parameter": (
        [POLICY, "s3fifo", CONFIG, '{"smal_ratio": 0.2}'],
        ["'smal_ratio'", "it takes small_ratio", "Did you mean 'small_ratio'?"],
    ),
    "not JSON": (
        [POLICY, "s3fifo", CONFIG, "small_ratio=0.2"],
        ["'small_ratio=0.2' is not JSON", """{"small_ratio": 0.2}"""],
    ),
    "JSON, but no object": (
        [POLICY, "s3fifo", CONFIG, "[1]"],
        ["'[1]' is not a JSON object"],
    ),
    "hole filling": (
        ["--hole-filling", "requires"],
        ["'requires'", "one of auto, off, require", "Did you mean 'require'?"],
    ),
    "of a policy in Python": (
        [POLICY, "test-fails-in-admit", f"{CONFIG}.good_calls", "-1"],
        ["good_calls is -1: must be a whole number, at least 0."],
    ),
}
#: Commands that take the flags, without a model.
COMMANDS = {
    "serve": ["serve"],
    "bench latency": ["bench", "latency"],
    "bench throughput": ["bench", "throughput", "--dataset-name=random"],
}


def assert_one_line(outcome: Outcome, texts: list[str]) -> None:
    """Status 2; the last line tells all, and there is no traceback above it."""
    assert outcome.status == 2, outcome
    assert "Traceback" not in outcome.errors
    (line,) = [line for line in outcome.errors.splitlines() if "error:" in line]
    assert line == outcome.errors.splitlines()[-1]
    for text in texts:
        assert text in line


@pytest.mark.parametrize("name", WRONG)
def test_serve_reports_a_wrong_flag(name: str, vllm: CommandLine) -> None:
    flags, texts = WRONG[name]
    assert_one_line(vllm("serve", "no/such-model", *flags), texts)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["misspelt policy", "not a number, dotted"])
def test_every_command_that_makes_an_engine_reports_it(
    command: str, name: str, model: str, vllm: CommandLine
) -> None:
    """The second is found by the parser only, which must not load the model."""
    flags, texts = WRONG[name]
    assert_one_line(vllm(*COMMANDS[command], "--model", model, *flags), texts)


@pytest.mark.parametrize("name", ["unknown policy", "not a number, dotted"])
def test_so_does_a_command_that_has_loaded_nothing(
    name: str, vllm: CommandLine
) -> None:
    flags, texts = WRONG[name]
    assert_one_line(vllm.fresh("serve", "no/such-model", *flags), texts)


@pytest.mark.parametrize("flag", [POLICY, f"{CONFIG}.small_ratio"])
def test_a_flag_without_its_value_is_reported(flag: str, vllm: CommandLine) -> None:
    outcome = vllm("serve", "no/such-model", flag)
    assert_one_line(outcome, [f"{flag} needs a value."])


def assert_accepted(outcome: Outcome) -> None:
    """The command got as far as to look for the model, which does not exist."""
    assert outcome.status == 1
    last = outcome.errors.splitlines()[-1]
    assert "offline" in outcome.errors or "huggingface" in outcome.errors
    assert "viction" not in last and "small_ratio" not in last


@pytest.mark.parametrize(
    "flags",
    [
        [POLICY, "s3fifo", CONFIG, '{"small_ratio": 0.2}'],
        [POLICY, "s3fifo", f"{CONFIG}.small_ratio", "0.2"],
        [POLICY, "adaptive", "--eviction-window", "900"],
        [POLICY, PYTHON_FIFO],
        [POLICY, "partial-compute", "--hole-filling=require"],
    ],
)
def test_right_flags_are_accepted(flags: list[str], vllm: CommandLine) -> None:
    assert_accepted(vllm("serve", "no/such-model", *flags))


def test_a_policy_may_come_from_a_file(vllm: CommandLine, tmp_path: Path) -> None:
    """And its parameters from the command line: they are checked together."""
    file = tmp_path / "settings.yaml"
    file.write_text("eviction-policy: s3fifo\n")
    command = ["serve", "no/such-model", "--config", str(file), CONFIG]
    assert_one_line(vllm(*command, '{"small_ratio": 3}'), [RATIO.format("3")])
    assert_accepted(vllm(*command, '{"small_ratio": 0.2}'))
