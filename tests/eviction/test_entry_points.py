# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy that comes with another installed package, found by its entry point."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm.v1.core.eviction import registry
from vllm.v1.core.eviction.config import parse_config, validate_eviction
from vllm.v1.core.eviction.registry import get_policy, policy_names, register_policy

SOURCE = """
from dataclasses import dataclass
from typing import Annotated
from annotated_types import Interval
from vllm.v1.core.eviction.policy import Fifo

@dataclass
class LifoConfig:
    keep: Annotated[int, Interval(ge=0, le=10)] = 0

class Lifo(Fifo):
    Config = LifoConfig
    summary = "the block that was filled last"

    def peek(self, n):
        kept = sorted(self._evictable, key=self._evictable.get)
        return [*kept[self.config.keep:][::-1], *kept[: self.config.keep]][:n]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package with one module and these entry points."""

    def forget() -> None:
        registry._entry_points.cache_clear()
        get_policy.cache_clear()

    def installed(entries: str, source: str = SOURCE) -> None:
        info = tmp_path / "someones_policy-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: someones-policy\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[vllm.eviction_policies]\n{entries}\n")
        (tmp_path / "someones_policy.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "someones_policy", raising=False)
        forget()

    yield installed
    monkeypatch.undo()
    forget()


Install = Callable[..., None]


def test_it_is_found_by_its_name(install: Install):
    install("lifo = someones_policy:Lifo")
    assert policy_names()[-1] == "lifo"
    spec = get_policy("lifo")
    assert spec.summary == "the block that was filled last" and not spec.native


def test_its_own_dataclass_validates_its_parameters(install: Install):
    install("lifo = someones_policy:Lifo")
    assert parse_config("lifo", {"keep": 3}).keep == 3
    with pytest.raises(ValueError) as error:
        validate_eviction("lifo", {"keep": 11})
    assert str(error.value) == (
        "eviction_config.keep is 11: must be a whole number, at least 0 and at most 10."
    )
    with pytest.raises(ValueError, match="'keep' is a parameter of lifo"):
        validate_eviction("s3fifo", {"keep": 3})


def test_it_chooses(install: Install):
    install("lifo = someones_policy:Lifo")
    policy = get_policy("lifo").make(4, parse_config("lifo", {"keep": 1}))
    for slot in range(4):
        policy.insert(slot, 1 + slot)
    assert [policy.victim() for _ in range(4)] == [3, 2, 1, 0]


def test_it_cannot_take_a_name_of_the_fork(install: Install):
    install("lru = someones_policy:Lifo")
    assert get_policy("lru").native
    assert policy_names().count("lru") == 1


def test_its_name_is_taken(install: Install):
    install("lifo = someones_policy:Lifo")
    with pytest.raises(ValueError, match="'lifo' is registered already"):
        register_policy("lifo", "vllm.v1.core.eviction.policy", "Fifo")


@pytest.mark.parametrize(
    ("entry", "source"),
    [
        pytest.param("someones_policy:Lifo", "import nowhere_at_all", id="import"),
        pytest.param("someones_policy:Lifo", "1 / 0", id="raises"),
        pytest.param("someones_policy:Other", SOURCE, id="no-such-class"),
        pytest.param("no_module_at_all:Lifo", SOURCE, id="no-such-module"),
    ],
)
def test_a_broken_one_harms_only_itself(install: Install, entry: str, source: str):
    install(f"broken = {entry}", source)
    with pytest.raises(ValueError, match="'broken' cannot be loaded") as error:
        get_policy("broken")
    assert "\n" not in str(error.value)
    validate_eviction("s3fifo", {})
    with pytest.raises(ValueError, match="has no parameter"):  # asks them all
        validate_eviction("s3fifo", {"keep": 1})
