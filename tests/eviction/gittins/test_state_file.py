# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What `gittins` has learnt outlives the engine, or one warning says why not."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from vllm._eviction_C import make_policy

from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import get_policy
from vllm.v1.core.eviction.state_file import load_state, save_state


def taught(num_slots: int = 8) -> Any:
    """A policy that has seen one block return again and again, 20 s apart."""
    policy: Any = make_policy("gittins", num_slots)
    policy.insert(0, 1)
    for turn in range(1, 20):
        policy.take(0)
        policy.admit(turn, [1], [0], 20.0 * turn)
        policy.reinsert(0)
    return policy


def make(path: Path) -> Any:
    parameters = parse_config("gittins", {"state_file": str(path)})
    return get_policy("gittins").make(8, parameters)


def test_a_new_policy_starts_with_what_was_learnt(tmp_path: Path):
    path = tmp_path / "state.json"
    policy = taught()
    assert policy.model() != make_policy("gittins", 8).model()
    assert save_state(policy.model(), "gittins", str(path))
    assert make(path).model() == policy.model()
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_it_fits_a_pool_of_another_size(tmp_path: Path):
    path = str(tmp_path / "state.json")
    save_state(taught(8).model(), "gittins", path)
    assert load_state(make_policy("gittins", 4000), "gittins", path)


def test_without_a_file_it_learns_anew_and_says_nothing(tmp_path: Path, caplog):
    assert make(tmp_path / "none").model() == make_policy("gittins", 8).model()
    assert not caplog.records


def damaged(state: dict[str, Any]) -> dict[str, str]:
    def changed(**fields: Any) -> str:
        return json.dumps(state | fields)

    return {
        "is ignored": json.dumps(state)[:100],
        "no state file": changed(format="other"),
        "version is 2, not 1": changed(version=2),
        "of the policy 'other'": changed(policy="other"),
        "no model": changed(model=None),
        "not one of this version": changed(model=state["model"][1:]),
        "float": changed(model=["x"] * len(state["model"])),
        "not one of": changed(model=[float("nan")] * len(state["model"])),
    }


def test_a_damaged_file_is_ignored_with_one_warning(tmp_path: Path, caplog):
    path = tmp_path / "state.json"
    save_state(taught().model(), "gittins", str(path))
    untaught = make_policy("gittins", 8).model()
    for why, text in damaged(json.loads(path.read_text())).items():
        path.write_text(text)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert make(path).model() == untaught
        (warning,) = caplog.messages
        assert why in warning and str(path) in warning and "\n" not in warning


@pytest.mark.parametrize("path", ["no folder/state", "/", "", "a\0b"])
def test_a_file_that_cannot_be_written_is_one_warning(path: str, caplog):
    assert not save_state(taught().model(), "gittins", path)
    assert len(caplog.messages) == 1


def test_the_policy_tells_what_it_has_learnt():
    report = taught().report()
    ages = report["age from, seconds"]
    (at,) = [i for i, hits in enumerate(report["hits"]) if hits]
    assert ages[at] <= 20.0 < ages[at + 1] and report["hits"][at] == 19
    assert sum(report["evictions"]) == 0
    # The one that it saw comes back after 20 s and no sooner.
    hazard = report["hazard, used 4 times, 4 s apart"]
    assert max(hazard[:at]) < 0.1 < hazard[at]
