# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The parameters of `--eviction-policy adaptive`, its candidates and its rule."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from annotated_types import Interval

from vllm.v1.core.eviction.registry import MANAGER, get_policy, nearest, policy_names
from vllm.v1.core.eviction.rules import Discounted, Paper, Rule, Window

DEFAULT_WINDOW = 900.0
"""Seconds; for a rule that needs a window when `--eviction-window` is not given."""

CANDIDATES = ("gittins", "lru", "s3fifo", "arc")
"""Unless others are given. `gittins` is most often the best; the others catch it where
what it has learnt does not hold."""


@dataclass
class AdaptiveConfig:
    """Keys of `--eviction-config` under `adaptive`."""

    candidates: list[Any] = field(default_factory=lambda: list(CANDIDATES))
    """Policies to choose from, names or objects with a `name` and parameters. The
    first is live at the start. Each costs a shadow: memory and time on one thread."""
    rule: Literal["discounted", "window", "paper"] | None = None
    """How to choose. Default: `window` when `--eviction-window` is given, else
    `discounted`. `paper` is WAKMan as published, for comparison."""
    half_life: Annotated[float, Interval(gt=0)] = 60.0
    """Seconds; `discounted`. Shorter follows the traffic sooner, longer is calmer."""
    interval: Annotated[float, Interval(gt=0)] = 10.0
    """Seconds between looks at the shadows."""
    errors: Annotated[float, Interval(ge=0)] | None = None
    """Standard errors that a lead must exceed; `discounted`. More switches less. By
    default 1, and 2 with `gittins` among the candidates: see `default_errors`."""
    min_lead: Annotated[float, Interval(ge=0, lt=1)] = 0.005
    """Share of the tokens that a lead must exceed; `discounted`."""
    objective: Literal["tokens", "compute"] = "tokens"
    """What a candidate must have more of: hit tokens, or the compute that its hits
    save. They differ where a deep block is dear, and policies that leave holes are
    candidates. Not with the rule `paper`, which counts hits."""
    first_window: Annotated[float, Interval(gt=0)] = 60.0
    """Seconds; `window`. The windows double from this one up to the full window."""
    dry_run: bool = False
    """Measure and report what would be chosen, and never switch."""
    threaded: bool = True
    """Run the shadows on a thread of their own; off, in step, for tests."""
    cost_file: str = ""
    """A file of `vllm bench eviction calibrate`, for the candidates that weigh what
    recomputing a block costs."""


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    Attributes:
        name: A registered policy.
        label: For metrics and logs; the name, with the parameters where the same
            policy is a candidate twice.
        config: Its parameters as given.

    """

    name: str
    label: str
    config: dict[str, Any]


def resolve_candidates(entries: list[Any]) -> list[Candidate]:
    """Check the list and give each candidate a label.

    Raises:
        ValueError: One line.

    """
    from vllm.v1.core.eviction.config import parse_config

    pairs: list[tuple[str, dict[str, Any]]] = []
    for entry in entries:
        if isinstance(entry, str):
            pairs.append((entry, {}))
        elif isinstance(entry, dict) and isinstance(entry.get("name"), str):
            config = {key: value for key, value in entry.items() if key != "name"}
            pairs.append((entry["name"], config))
        else:
            raise ValueError(
                f"eviction_config.candidates holds {entry!r}: must be the name of a "
                """policy, or an object such as {"name": "s3fifo", "promotion": 2}."""
            )
    native = [name for name in policy_names() if _is_native(name)]
    for name, config in pairs:
        known = name in policy_names(offline=True)
        if name == MANAGER or (known and name not in native):
            raise ValueError(
                f"eviction_config.candidates holds {name!r}, which cannot be a shadow: "
                f"choose from {', '.join(native)}."
            )
        if name not in native:
            raise ValueError(
                f"eviction_config.candidates holds the unknown policy {name!r}: choose "
                f"from {', '.join(native)}.{nearest(name, native)}"
            )
        parse_config(name, config)
        if "cost_file" in config:
            raise ValueError(
                f"eviction_config.candidates gives {name!r} a cost_file: must be "
                "eviction_config.cost_file, one for all candidates."
            )
    if len(pairs) < 2:
        raise ValueError(
            f"eviction_config.candidates is {entries!r}: must name at least two."
        )
    if any(pairs.count(pair) > 1 for pair in pairs):
        raise ValueError(
            f"eviction_config.candidates is {entries!r}: names a candidate twice."
        )
    names = [name for name, _ in pairs]
    return [
        Candidate(
            name, name if names.count(name) == 1 else _label(name, config), config
        )
        for name, config in pairs
    ]


def resolve_rule(config: AdaptiveConfig, window: float | None) -> str:
    """Return the rule in force.

    Raises:
        ValueError: A window with a rule that has none, an objective with one that
            cannot tell.

    """
    if config.rule == "paper" and config.objective == "compute":
        raise ValueError(
            "eviction_config.objective is 'compute', but the rule 'paper' counts hits: "
            "leave out one of the two."
        )
    if config.rule is None:
        return "discounted" if window is None else "window"
    if config.rule == "discounted" and window is not None:
        raise ValueError(
            f"--eviction-window is {window:g}, but eviction_config.rule 'discounted' "
            "has no window: leave out one of the two."
        )
    return config.rule


def default_errors(names: Iterable[str]) -> float:
    """Standard errors that `discounted` asks for, by its candidates' policies.

    `gittins` gives up hits now for hits later. After one error's worth of intervals the
    others seem to lead, and it would be left too soon.
    """
    return 2.0 if "gittins" in names else 1.0


def default_rule(names: Iterable[str]) -> Callable[[int, float], Rule]:
    """What builds the default rule among candidates of these policies."""
    return partial(Discounted, errors=default_errors(names))


def make_rule(
    config: AdaptiveConfig, window: float | None, num_candidates: int, now: float
) -> Rule:
    """Build the configured rule.

    Args:
        config: Of the manager.
        window: `--eviction-window`, seconds.
        num_candidates: At least two.
        now: Seconds; counting starts.

    """
    rule = resolve_rule(config, window)
    length = DEFAULT_WINDOW if window is None else window
    if rule == "paper":
        return Paper(num_candidates, now, length)
    if rule == "window":
        return Window(num_candidates, now, length, config.first_window)
    errors = config.errors
    if errors is None:
        named = resolve_candidates(config.candidates)
        errors = default_errors(candidate.name for candidate in named)
    return Discounted(
        num_candidates,
        now,
        config.half_life,
        config.interval,
        errors,
        config.min_lead,
    )


def _is_native(name: str) -> bool:
    try:
        return get_policy(name).native
    except ValueError:
        return False


def _label(name: str, config: dict[str, Any]) -> str:
    parameters = ",".join(f"{key}={value}" for key, value in sorted(config.items()))
    return f"{name}({parameters})" if parameters else name
