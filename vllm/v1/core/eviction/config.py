# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Validates `eviction_policy` and `eviction_config`, on the command line and in
`CacheConfig`.

Upstream answers a bad field of a config with a traceback, seconds later. A flag of
ours is answered with one line: its value, what is allowed, the nearest name.
"""

import argparse
import json
import sys
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Lt
from pydantic import TypeAdapter, ValidationError

from vllm.v1.core.eviction.registry import (
    DEFAULT_POLICY,
    get_policy,
    nearest,
    policy_names,
)


def parse_config(policy: str, config: dict[str, Any]) -> Any:
    """Build the typed parameters of a policy.

    Args:
        policy: A registered name.
        config: Parameter names to values, as in `--eviction-config`.

    Returns:
        An instance of the policy's own dataclass.

    Raises:
        ValueError: One line; see the module.

    """
    spec = get_policy(policy)
    if not isinstance(config, dict):
        raise ValueError(
            f"eviction_config is {config!r}: must be a JSON object of parameters."
        )
    if not is_dataclass(spec.config):
        raise ValueError(f"The Config of eviction policy {policy!r} is no dataclass.")
    hints = get_type_hints(spec.config, include_extras=True)
    names = [field.name for field in fields(spec.config)]
    for key in config:
        if key not in names:
            raise ValueError(_unknown_parameter(policy, str(key), names))
    values = {}
    for key, value in config.items():
        try:
            values[key] = TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError:
            raise ValueError(
                f"eviction_config.{key} is {value!r}: must be {_allowed(hints[key])}."
            ) from None
    return spec.config(**values)


def validate_eviction(policy: str, config: dict[str, Any]) -> None:
    """Check the two fields of `CacheConfig` together.

    Raises:
        ValueError: One line; see the module.

    """
    parse_config(policy, config)


def check_eviction_args(args: argparse.Namespace) -> None:
    """Check parsed arguments; on a fault print one line and exit with status 2.

    The two flags depend on each other, which an argparse type cannot see.
    """
    policy = getattr(args, "eviction_policy", None) or DEFAULT_POLICY
    config = getattr(args, "eviction_config", None) or {}
    try:
        validate_eviction(policy, config)
    except ValueError as error:
        print(f"vllm: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def add_eviction_args(
    group: argparse._ArgumentGroup, cache_kwargs: dict[str, dict[str, Any]]
) -> None:
    """Add the flags to upstream's group of cache arguments.

    Args:
        group: Where to add them.
        cache_kwargs: argparse keywords that upstream made of `CacheConfig`.

    """
    summaries = "; ".join(_summary(name) for name in policy_names())
    group.add_argument(
        "--eviction-policy",
        **cache_kwargs["eviction_policy"]
        | {
            "type": _policy_name,
            "metavar": "NAME",
            "help": f"{cache_kwargs['eviction_policy']['help']}\n\n"
            f"Evicted first: {summaries}.".replace("%", "%%"),
        },
    )
    group.add_argument(
        "--eviction-config",
        **cache_kwargs["eviction_config"] | {"type": _json_object, "metavar": "JSON"},
    )


def public_info(info: dict[str, str]) -> dict[str, str]:
    """Leave out what must not become a label of `vllm:cache_config_info`.

    A label has few values. Parameters have many, and paths are no one's business.
    """
    return {key: value for key, value in info.items() if key != "eviction_config"}


def _summary(name: str) -> str:
    try:
        return f"{name}, {get_policy(name).summary}"
    except ValueError:
        return f"{name}, a plug-in that cannot be loaded"


def _policy_name(value: str) -> str:
    try:
        return get_policy(value).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(
            f"{value!r} is not JSON ({error.msg} at character {error.pos}): "
            """write '{"small_ratio": 0.2}' or --eviction-config.small_ratio 0.2."""
        ) from None
    if not isinstance(parsed, dict):
        raise argparse.ArgumentTypeError(
            f"{value!r} is not a JSON object: "
            """write '{"small_ratio": 0.2}' or --eviction-config.small_ratio 0.2."""
        )
    return parsed


def _unknown_parameter(policy: str, key: str, names: list[str]) -> str:
    others = []
    for other in policy_names():
        try:
            if key in (field.name for field in fields(get_policy(other).config)):
                others.append(other)
        except ValueError:
            continue  # a plug-in that cannot be loaded
    takes = f"it takes {', '.join(names)}" if names else "it takes no parameters"
    belongs = f" {key!r} is a parameter of {', '.join(others)}." if others else ""
    return (
        f"Eviction policy {policy!r} has no parameter {key!r}: "
        f"{takes}.{belongs}{nearest(key, names)}"
    )


def _allowed(hint: Any) -> str:
    """Put a type hint into words: ``a number, more than 0 and less than 1``."""
    kind = getattr(hint, "__origin__", hint)
    words = {float: "a number", int: "a whole number", bool: "true or false"}
    text = words.get(kind, getattr(kind, "__name__", str(kind)))
    limits = []
    for bound in getattr(hint, "__metadata__", ()):
        parts = list(bound) if isinstance(bound, Interval) else [bound]
        for part in parts:
            match part:
                case Gt(gt=limit):
                    limits.append(f"more than {limit}")
                case Ge(ge=limit):
                    limits.append(f"at least {limit}")
                case Lt(lt=limit):
                    limits.append(f"less than {limit}")
                case Le(le=limit):
                    limits.append(f"at most {limit}")
    return f"{text}, {' and '.join(limits)}" if limits else text
