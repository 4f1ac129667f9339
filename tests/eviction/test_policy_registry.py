# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Names, and what stands behind them."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from vllm._eviction_C import make_policy, native_policies

from vllm.v1.core.eviction import registry
from vllm.v1.core.eviction.config import parse_config
from vllm.v1.core.eviction.registry import (
    DEFAULT_POLICY,
    MANAGER,
    get_policy,
    policy_names,
    register_policy,
    unregister_policy,
)

NATIVE = [n for n in policy_names(offline=True) if get_policy(n).native]


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """`register_policy` that is taken back after the test."""
    names: list[str] = []

    def registered(name: str, *where: str) -> None:
        register_policy(name, *where)
        names.append(name)

    yield registered
    for name in names:
        unregister_policy(name)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a module that can be imported; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> str:
        name = f"policy_of_{tmp_path.name}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


def one_line(error: pytest.ExceptionInfo[ValueError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# ---- What ships ----


def test_the_registry_and_the_core_know_the_same_policies():
    assert sorted(NATIVE) == native_policies()


@pytest.mark.parametrize("name", NATIVE)
def test_the_core_has_the_same_defaults(name: str):
    """Made with the registry's defaults and with none, a policy is the same one: it
    takes the same memory, and chooses alike after the same events."""
    spec = get_policy(name)
    ours, theirs = spec.make(100, spec.config()), make_policy(name, 100)
    assert ours.bytes == theirs.bytes
    assert ours.ghost_limit == theirs.ghost_limit
    for policy in (ours, theirs):
        for slot in range(100):
            policy.insert(slot, 1 + slot)
        for serial in range(300):  # blocks of one, of two and of three uses
            slot = serial * serial % 40
            policy.take(slot)
            policy.admit(serial, [policy.key_of(slot)], [slot], 0.0)
            policy.reinsert(slot)
    assert ours.peek(100) == theirs.peek(100)


@pytest.mark.parametrize("name", NATIVE)
def test_the_core_takes_every_parameter_and_no_other(name: str):
    spec = get_policy(name)
    make_policy(name, 10, registry.native_parameters(name, {}))
    with pytest.raises(ValueError, match=f"{name} has no parameter nonsense"):
        make_policy(name, 10, {"nonsense": 1.0})
    assert spec.native


@pytest.mark.parametrize("name", NATIVE)
def test_ghosts_are_announced(name: str):
    """Metrics leave out what a policy without ghosts cannot count."""
    spec = get_policy(name)
    assert spec.ghosts == (spec.make(10, spec.config()).ghost_limit > 0)


@pytest.mark.parametrize("name", NATIVE)
def test_who_weighs_the_cost_of_a_block_takes_a_file_of_costs(name: str):
    names = [field.name for field in fields(get_policy(name).config)]
    assert ("cost_file" in names) == make_policy(name, 10).traits["needs_cost"]
    if "cost_file" in names:
        assert parse_config(name, {"cost_file": "x.json"}).cost_file == "x.json"
        # It is read in Python, and no matter of the core.
        assert "cost_file" not in registry.native_parameters(name, {})


@pytest.mark.parametrize("name", NATIVE)
def test_what_the_engine_may_not_run_says_so_in_the_core_too(name: str):
    spec = get_policy(name)
    assert spec.offline == make_policy(name, 10).traits["offline"]
    assert spec.offline == (name not in policy_names())


@pytest.mark.parametrize("name", NATIVE)
def test_who_wants_holes_filled_says_so_in_both_places(name: str):
    fills = name in ("random-compute", "partial-compute")
    assert get_policy(name).fills_holes == fills
    assert make_policy(name, 10).traits["fills_holes"] == fills


def test_the_core_refuses_an_unknown_name():
    with pytest.raises(ValueError, match="no native policy is called nonsense"):
        make_policy("nonsense", 10)


@pytest.mark.parametrize("name", NATIVE)
def test_the_core_refuses_a_slot_that_does_not_exist(name: str):
    policy = make_policy(name, 3)
    for call in (policy.take, policy.reinsert, policy.forget, policy.key_of):
        with pytest.raises(IndexError, match="no such slot"):
            call(3)
    with pytest.raises(IndexError, match="no such slot"):
        policy.insert(3, 1)
    with pytest.raises(IndexError, match="no such slot"):
        policy.admit(1, [1], [3], 0.0)
    policy.check()


def test_every_name_has_a_summary_for_the_help_text():
    for name in policy_names():
        summary = get_policy(name).summary
        assert summary and "\n" not in summary and not summary.endswith(".")
        assert summary != "a policy without a summary"


def test_lru_is_the_default_and_comes_first():
    assert policy_names()[0] == DEFAULT_POLICY == "lru"


# ---- Unknown names ----


def test_an_unknown_name_is_answered_with_all_and_the_nearest():
    with pytest.raises(ValueError) as error:
        get_policy("s3fif")
    text = one_line(error)
    assert "'s3fif'" in text and "Did you mean 's3fifo'?" in text
    for name in [*policy_names(), MANAGER]:
        assert name in text


def test_nothing_is_proposed_for_a_name_like_no_other():
    with pytest.raises(ValueError) as error:
        get_policy("qqqqqqqq")
    assert "Did you mean" not in one_line(error)


# ---- Policies of one's own ----


def test_a_registered_policy_is_found_and_works(register):
    register("my-fifo", "vllm.v1.core.eviction.policy", "Fifo")
    assert "my-fifo" in policy_names()
    spec = get_policy("my-fifo")
    assert not spec.native and spec.summary == "the block that was filled first"
    policy = spec.make(2, parse_config("my-fifo", {}))
    policy.insert(1, 11)
    policy.insert(0, 10)
    assert policy.peek(2) == [1, 0]


def test_it_is_gone_when_it_is_unregistered(register):
    register_policy("my-fifo", "vllm.v1.core.eviction.policy", "Fifo")
    get_policy("my-fifo")
    unregister_policy("my-fifo")
    with pytest.raises(ValueError, match="Unknown eviction policy 'my-fifo'"):
        get_policy("my-fifo")


@pytest.mark.parametrize("name", ["lru", "s3fifo", MANAGER, "my-fifo"])
def test_a_name_is_given_once(register, name: str):
    register("my-fifo", "vllm.v1.core.eviction.policy", "Fifo")
    with pytest.raises(ValueError, match=f"{name!r} is registered already"):
        register_policy(name, "vllm.v1.core.eviction.policy", "Fifo")


def test_a_module_is_not_imported_before_it_is_asked_for(register, module):
    name = module("raise RuntimeError('imported')")
    register("lazy", name, "Policy")
    assert "lazy" in policy_names()
    assert name not in sys.modules


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param("class Other: ...", "has no attribute 'Policy'", id="no-class"),
        pytest.param("import nowhere_at_all", "nowhere_at_all", id="import-error"),
        pytest.param("Policy = 1 / 0", "division by zero", id="raises"),
        pytest.param("class Policy(:", "invalid syntax", id="syntax-error"),
        pytest.param("raise ValueError('a\\nb')", "a b", id="two-lines"),
    ],
)
def test_what_cannot_be_loaded_says_why_in_one_line(
    register, module, source: str, complaint: str
):
    register("broken", module(source), "Policy")
    with pytest.raises(ValueError) as error:
        get_policy("broken")
    text = one_line(error)
    assert text.startswith("Eviction policy 'broken' cannot be loaded: ")
    assert complaint in text


def test_a_module_that_is_not_there(register):
    register("broken", "no_such_module_anywhere", "Policy")
    with pytest.raises(ValueError, match="cannot be loaded: .*no_such_module_anywhere"):
        get_policy("broken")


@pytest.mark.parametrize(
    "source", ["class Policy: ...", "def Policy(): ...", "Policy = 3"]
)
def test_what_is_no_policy_is_refused(register, module, source: str):
    register("other", module(source), "Policy")
    with pytest.raises(ValueError, match="not a subclass of .*EvictionPolicy") as error:
        get_policy("other")
    one_line(error)
