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
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from vllm.v1.core.eviction.policy import EvictionPolicy, NoConfig

if TYPE_CHECKING:
    from vllm._eviction_C import Policy

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

    """

    name: str
    summary: str
    config: type
    make: Callable[[int, Any], "Policy"]
    native: bool
    ghosts: bool


@dataclass
class S3FIFOConfig:
    """Parameters of `s3fifo`."""

    small_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.1
    """Share of the evictable blocks that the small queue may hold before it is
    evicted from. More protects new blocks longer, fewer old ones."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.9
    """Evicted blocks that are remembered, as a share of the pool."""
    promotion: Annotated[int, Interval(ge=1, le=3)] = 1
    """Uses in the small queue that lead to the main queue. The paper has 2; on
    prefix-cache traffic 1 is better."""


@dataclass
class S4FIFOConfig:
    """Parameters of `s4fifo`, under the names that its paper has for them."""

    rho_s: Annotated[float, Interval(ge=0.05, le=0.9)] = 0.1
    """Share of the evictable blocks that the small queue may hold before it is
    evicted from."""
    rho_g: Annotated[float, Interval(ge=0, le=6)] = 0.9
    """Evicted blocks that are remembered, as a share of the pool."""
    kappa: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """A use counts only when as many blocks as this share of the small queue have
    entered it since: uses within a moment are one burst. The paper has 0 or 0.25."""
    tau_s: Annotated[int, Interval(ge=1, le=3)] = 1
    """Uses in the small queue that lead to the main queue. The paper has 1 or 2."""
    tau_g: Annotated[int, Interval(ge=0, le=1)] = 0
    """Uses that a block must have had to be remembered when it leaves the small
    queue. With 1, `tau_s` must be more, or nothing is remembered."""


@dataclass
class SLRUConfig:
    """Parameters of `slru`."""

    protected_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.8
    """Share of the evictable blocks that the protected segment may hold. More keeps
    reused blocks longer, and new ones shorter."""


@dataclass
class TwoQueueConfig:
    """Parameters of `2q`."""

    in_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.25
    """Share of the evictable blocks that the queue of new blocks may hold before it
    is evicted from."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, as a share of the pool. Without any, no
    block is ever known to have returned."""


@dataclass
class LFUConfig:
    """Parameters of `lfu`."""

    ageing: bool = True
    """Whether blocks that were popular once give way to those in use now. Without
    it, old counts live as long as their blocks."""


@dataclass
class LIRSConfig:
    """Parameters of `lirs`."""

    hir_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Share of the pool, one block at least, that is left to blocks which were not
    used twice in a short while. The paper has 1 %."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.75
    """Evicted blocks that are remembered at most, as a share of the pool."""


@dataclass
class LeCaRConfig:
    """Parameters of `lecar`."""

    learning_rate: Annotated[float, Interval(gt=0, le=10)] = 0.45
    """How much one regret changes the weights. More follows changes sooner."""
    discount: Annotated[float, Interval(gt=0, le=1)] = 0.005
    """What is left of a regret after as many accesses as the pool has blocks."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, half for each expert, as a share of the
    pool. Without any, the weights stay equal."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws between the experts."""


@dataclass
class TLRUConfig:
    """Parameters of `t-lru`."""

    xi: Annotated[int, Interval(ge=0, le=10_000_000)] = 2048
    """Tokens that may be recomputed within the target for the time to the first
    token: the target times the prefill rate. With 0 this is LRU."""
    next_prompt: Annotated[int, Interval(ge=0, le=10_000_000)] = 256
    """Tokens by which a conversation is longer when it comes back."""


@dataclass
class WTinyLFUConfig:
    """Parameters of `wtinylfu`."""

    window_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Share of the pool, one block at least, that new blocks have to themselves. Where
    the hill climber starts."""
    protected_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.8
    """Share of the rest that is left to blocks which were hit there."""
    climb: bool = True
    """Whether the border between the two moves with the hit rate."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws by which a loser is let in now and then."""


@dataclass
class LHDConfig:
    """Parameters of `lhd`."""

    samples: Annotated[int, Interval(ge=1, le=1024)] = 32
    """Blocks that are drawn for each eviction, of which the worst goes."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws."""


@dataclass
class WorkloadAwareConfig:
    """Parameters of `workload-aware`."""

    horizon: Annotated[float, Interval(ge=0.01, le=100)] = 1.0
    """A block is worth the probability that it returns within this many pools' worth
    of accesses."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, as a share of the pool: their returns count
    in the fits. Without any, what is evicted early seems never to return."""


@dataclass
class AsymCacheConfig:
    """Parameters of `asymcache`."""

    half_life: Annotated[float, Interval(ge=0.01, le=100)] = 1.0
    """Accesses since the last use that halve the probability of another, in pools'
    worth. More weighs cost and uses higher against age."""


def _native(
    name: str, summary: str, config: type = NoConfig, ghosts: bool = False
) -> PolicySpec:
    def make(num_slots: int, parameters: Any) -> "Policy":
        from vllm._eviction_C import make_policy

        return make_policy(name, num_slots, _numbers(parameters))

    return PolicySpec(name, summary, config, make, native=True, ghosts=ghosts)


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
        ),
        _native("arc", "once-used or reused blocks, in adaptive shares", ghosts=True),
        _native(
            "gittins",
            "what is learnt to earn the fewest hits for its time in memory",
            ghosts=True,
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
    if name in policy_names() or name == MANAGER:
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


def policy_names() -> list[str]:
    """All names, those of the fork first, in the order of the documentation."""
    return list(dict.fromkeys([*_NATIVE, *_python, *_entry_points()]))


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


def native_parameters(name: str, config: dict[str, Any]) -> dict[str, float]:
    """Parameters of a native policy as the C++ core takes them, defaults included.

    Args:
        name: A native policy.
        config: As in `--eviction-config`.

    """
    from vllm.v1.core.eviction.config import parse_config

    return _numbers(parse_config(name, config))


def _numbers(parameters: Any) -> dict[str, float]:
    return {key: float(value) for key, value in asdict(parameters).items()}


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
