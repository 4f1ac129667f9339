# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Names -> policies. The only place that knows them all.

Imports neither the engine nor the C++ core: the command line validates names and
parameters with it before anything heavy is loaded.
"""

import difflib
import importlib
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from vllm.v1.core.eviction.parameters import (
    AsymCacheConfig,
    GDSFConfig,
    LeCaRConfig,
    LFUConfig,
    LHDConfig,
    LIRSConfig,
    PartialComputeConfig,
    RandomComputeConfig,
    S3FIFOConfig,
    S4FIFOConfig,
    SLRUConfig,
    TLRUConfig,
    TwoQueueConfig,
    WorkloadAwareConfig,
    WTinyLFUConfig,
)
from vllm.v1.core.eviction.policy import EvictionPolicy, NoConfig

if TYPE_CHECKING:
    from vllm._eviction_C import HoleRule, Policy

# Not vllm.logger: this module is imported before vLLM configures logging.
logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "vllm.eviction_policies"
DEFAULT_POLICY = "lru"
MANAGER = "adaptive"
"""Not a policy but the manager that chooses among them; see adaptive.py."""


@dataclass(frozen=True)
class PolicySpec:
    """One registered policy.

    Attributes:
        name: As given to `--eviction-policy`.
        summary: What it evicts first; one clause.
        config: Dataclass of its parameters.
        make: Builds it from the pool's number of blocks and an instance of
            `config`.
        native: Written in C++, and so fit to be a shadow.
        ghosts: Remembers what it evicted.
        offline: For the lab only; the engine refuses it.
        fills_holes: Evicts from the middle and the beginning of prompts, which is
            worth something only where holes are filled.

    """

    name: str
    summary: str
    config: type
    make: Callable[[int, Any], "Policy"]
    native: bool
    ghosts: bool
    offline: bool = False
    fills_holes: bool = False


@dataclass
class GittinsConfig:
    """Parameters of `gittins`."""

    state_file: str = ""
    """Where what it has learnt is kept: read at the start, written each minute and when
    the engine shuts down. By default it learns anew. Of a candidate of `adaptive`:
    what its shadow has learnt."""


def _native(
    name: str,
    summary: str,
    config: type = NoConfig,
    ghosts: bool = False,
    offline: bool = False,
    fills_holes: bool = False,
) -> PolicySpec:
    def make(num_slots: int, parameters: Any) -> "Policy":
        from vllm._eviction_C import make_policy

        policy = make_policy(name, num_slots, _numbers(parameters))
        if path := getattr(parameters, "state_file", None):
            from vllm.v1.core.eviction.state_file import load_state

            load_state(policy, name, path)
        return policy

    return PolicySpec(
        name,
        summary,
        config,
        make,
        native=True,
        ghosts=ghosts,
        offline=offline,
        fills_holes=fills_holes,
    )


_NATIVE = {
    spec.name: spec
    for spec in (
        _native("lru", "the block released longest ago (vLLM's own order)"),
        _native(
            "s3fifo",
            "new blocks that were not used again soon",
            S3FIFOConfig,
            ghosts=True,
        ),
        _native(
            "s4fifo",
            "as s3fifo, with more knobs; uses within a moment do not count",
            S4FIFOConfig,
            ghosts=True,
        ),
        _native("sieve", "the oldest block not used since the hand passed"),
        _native(
            "t-lru",
            "ends of conversations that can be recomputed in time, then as lru",
            TLRUConfig,
        ),
        _native("slru", "blocks that were not used again, for longest", SLRUConfig),
        _native(
            "2q",
            "new blocks, unless they returned after they had left",
            TwoQueueConfig,
            ghosts=True,
        ),
        _native(
            "lirs",
            "blocks not used twice in a short while, oldest first",
            LIRSConfig,
            ghosts=True,
        ),
        _native(
            "lecar",
            "what LRU or LFU would, drawn by weights that learn from regret",
            LeCaRConfig,
            ghosts=True,
        ),
        _native("lfu", "the block with the fewest uses, old ones for less", LFUConfig),
        _native(
            "wtinylfu",
            "new blocks, unless they are used more than those they would replace",
            WTinyLFUConfig,
        ),
        _native(
            "lhd",
            "of a sample, the block with the fewest hits to expect for its time",
            LHDConfig,
        ),
        _native(
            "workload-aware",
            "the block least likely to return soon, by the turn it was last used in",
            WorkloadAwareConfig,
            ghosts=True,
        ),
        _native(
            "asymcache",
            "a small recompute cost times a small probability of reuse",
            AsymCacheConfig,
        ),
        _native(
            "gdsf",
            "few uses times a small recompute cost, old uses for less",
            GDSFConfig,
        ),
        _native("arc", "once-used or reused blocks, in adaptive shares", ghosts=True),
        _native(
            "gittins",
            "what is learnt to earn the fewest hits for its time in memory",
            GittinsConfig,
            ghosts=True,
        ),
        _native(
            "session-lru",
            "the session active longest ago, as a whole",
            offline=True,
        ),
        _native(
            "random-compute",
            "of a sample, the block cheapest to recompute for its age; leaves holes",
            RandomComputeConfig,
            fills_holes=True,
        ),
        _native(
            "partial-compute",
            "the same in chunks from the beginning of what a request computed",
            PartialComputeConfig,
            fills_holes=True,
        ),
    )
}


# Policies in Python, by name: (module, class). Loaded when they are asked for.
_python: dict[str, tuple[str, str]] = {}


def register_policy(name: str, module: str, class_name: str) -> None:
    """Make a policy written in Python available under a name.

    Args:
        name: For `--eviction-policy`; must be free.
        module: Where the class is; imported when the policy is asked for.
        class_name: A subclass of `EvictionPolicy`.

    Raises:
        ValueError: The name is taken.

    """
    if name in policy_names(offline=True) or name == MANAGER:
        raise ValueError(f"An eviction policy called {name!r} is registered already.")
    _python[name] = (module, class_name)
    get_policy.cache_clear()


def unregister_policy(name: str) -> None:
    """Take back `register_policy`; for tests."""
    del _python[name]
    get_policy.cache_clear()


@cache
def _entry_points() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def policy_names(offline: bool = False) -> list[str]:
    """All names, those of the fork first, in the order of the documentation.

    Args:
        offline: Those that only the lab can run, too.

    """
    own = [name for name, spec in _NATIVE.items() if offline or not spec.offline]
    others = [*_python, *_entry_points()]
    return own + [name for name in dict.fromkeys(others) if name not in _NATIVE]


def check_live(name: str) -> None:
    """Check that the engine may run a policy.

    Raises:
        ValueError: Only the lab can, or it is not known; see `get_policy`.

    """
    if name != MANAGER and get_policy(name).offline:
        raise ValueError(
            f"Eviction policy {name!r} runs in the lab only (vllm bench eviction "
            f"replay): choose from {', '.join([*policy_names(), MANAGER])}."
        )


@cache
def get_policy(name: str) -> PolicySpec:
    """Look up a policy.

    Raises:
        ValueError: No policy has that name, or its class cannot be loaded. One
            line that names what is allowed.

    """
    if name in _NATIVE:
        return _NATIVE[name]
    if name not in _python and name not in _entry_points():
        raise ValueError(_unknown(name))
    try:
        if name in _python:
            module, class_name = _python[name]
            policy_class = getattr(importlib.import_module(module), class_name)
        else:
            policy_class = _entry_points()[name].load()
    except Exception as error:  # someone else's module: it may raise anything
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"Eviction policy {name!r} cannot be loaded: {why}") from error
    is_class = isinstance(policy_class, type)
    if not (is_class and issubclass(policy_class, EvictionPolicy)):
        raise ValueError(
            f"Eviction policy {name!r} is {policy_class!r}, "
            "which is not a subclass of vllm.v1.core.eviction.policy.EvictionPolicy."
        )

    def make(num_slots: int, parameters: Any) -> "Policy":
        from vllm._eviction_C import wrap_policy

        return wrap_policy(policy_class(num_slots, parameters), num_slots)

    return PolicySpec(
        name,
        policy_class.summary,
        policy_class.Config,
        make,
        native=False,
        ghosts=hasattr(policy_class, "num_ghosts"),
    )


def native_parameters(
    name: str, config: dict[str, Any], holes: "HoleRule | None" = None
) -> dict[str, float]:
    """Parameters of a native policy as the C++ core takes them, defaults included.

    Args:
        name: A native policy.
        config: As in `--eviction-config`.
        holes: As of `parse_config`.

    """
    from vllm.v1.core.eviction.config import parse_config

    return _numbers(parse_config(name, config, holes))


def _numbers(parameters: Any) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in asdict(parameters).items()
        if key not in ("cost_file", "state_file")  # read in Python
        and value is not None
    }


def nearest(name: str, names: list[str]) -> str:
    """Return ``" Did you mean 'x'?"`` or nothing."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def _unknown(name: str) -> str:
    names = [*policy_names(), MANAGER]
    return (
        f"Unknown eviction policy {name!r}: choose from {', '.join(names)}."
        f"{nearest(name, names)}"
    )
