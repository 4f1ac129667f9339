# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Validates the eviction fields of `CacheConfig`, there and on the command line.

Upstream answers a bad field of a config with a traceback, seconds later. A flag of
ours is answered with one line: its value, what is allowed, the nearest name.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Interval, Le, Lt
from pydantic import TypeAdapter, ValidationError

from vllm.v1.core.eviction.adaptive_config import (
    AdaptiveConfig,
    resolve_candidates,
    resolve_rule,
)
from vllm.v1.core.eviction.parameters import PartialComputeConfig
from vllm.v1.core.eviction.registry import (
    DEFAULT_POLICY,
    MANAGER,
    check_live,
    get_policy,
    nearest,
    policy_names,
)

if TYPE_CHECKING:
    from vllm._eviction_C import HoleRule

HOLE_FILLING = ("auto", "off", "require")
"""Values of `--hole-filling`, the default first."""


def parse_config(
    policy: str, config: dict[str, Any], holes: "HoleRule | None" = None
) -> Any:
    """Build the typed parameters of a policy.

    Args:
        policy: A registered name.
        config: Parameter names to values, as in `--eviction-config`.
        holes: How the pool that it is for fills them, if it does; for defaults that
            depend on it.

    Returns:
        An instance of the policy's own dataclass.

    Raises:
        ValueError: One line; see the module.

    """
    config_class = _config_class(policy)
    if not isinstance(config, dict):
        raise ValueError(
            f"eviction_config is {config!r}: must be a JSON object of parameters."
        )
    if not is_dataclass(config_class):
        raise ValueError(f"The Config of eviction policy {policy!r} is no dataclass.")
    hints = get_type_hints(config_class, include_extras=True)
    names = [field.name for field in fields(config_class)]
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
    for field in fields(config_class):
        needed = field.init and field.default is field.default_factory is MISSING
        if needed and field.name not in values:
            raise ValueError(
                f"Eviction policy {policy!r} needs eviction_config.{field.name}."
            )
    parameters = config_class(**values)
    if holes is not None and isinstance(parameters, PartialComputeConfig):
        parameters.chunk = parameters.chunk or holes.budget
    return parameters


def validate_eviction(
    policy: str, config: dict[str, Any], window: float | None = None
) -> None:
    """Check the fields of `CacheConfig` together.

    Raises:
        ValueError: One line; see the module.

    """
    check_live(policy)
    parameters = parse_config(policy, config)
    if window is not None and not (window > 0 and math.isfinite(window)):
        raise ValueError(
            f"--eviction-window is {window:g}: must be more than 0 seconds."
        )
    if policy == MANAGER:
        resolve_candidates(parameters.candidates)
        resolve_rule(parameters, window)
    elif window is not None:
        raise ValueError(
            f"--eviction-window is {window:g}, but the policy is {policy!r}: only "
            f"--eviction-policy {MANAGER} has a window."
        )


def may_fill_holes(cache_config: Any) -> bool:
    """Whether `--hole-filling` asks for it under this policy.

    Args:
        cache_config: Upstream's, with valid fields.

    """
    mode, policy = cache_config.hole_filling, cache_config.eviction_policy
    if mode != "auto":
        return bool(mode == "require")
    names = [policy]
    if policy == MANAGER:
        config = parse_config(MANAGER, cache_config.eviction_config)
        names = [each.name for each in resolve_candidates(config.candidates)]
    return any(get_policy(name).fills_holes for name in names)


def check_eviction_args(args: argparse.Namespace) -> None:
    """Check parsed arguments; on a fault print one line and exit with status 2.

    The flags depend on each other, which an argparse type cannot see.
    """
    policy = getattr(args, "eviction_policy", None) or DEFAULT_POLICY
    config = getattr(args, "eviction_config", None) or {}
    try:
        validate_eviction(policy, config, getattr(args, "eviction_window", None))
    except ValueError as error:
        _exit(error)


def check_eviction_argv(argv: Sequence[str]) -> None:
    """Check the flags as typed, before the command line loads the engine.

    Upstream imports every subcommand before it parses, which takes ten seconds. Only
    what is plain to see is looked at here (`--flag value`, `--flag=value`, a dotted
    parameter whose value is JSON): the full check is that of the parsed arguments.
    """
    typed: dict[str, str] = {}
    parameters: dict[str, Any] = {}
    # A file may have a policy, too.
    plain = "--config" not in argv
    for i, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        prefix, dot, name = flag.partition(".")
        prefix = prefix.replace("_", "-")
        if not prefix.startswith("--eviction-") and prefix != "--hole-filling":
            continue
        if not equals:
            if i + 1 == len(argv):
                _exit(ValueError(f"{word} needs a value."))
            value = argv[i + 1]
        if not dot:
            typed[prefix] = value
            continue
        plain = plain and name.isidentifier()
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            plain = False
    try:
        policy = _policy_name(typed.get("--eviction-policy", DEFAULT_POLICY))
        config = _json_object(typed.get("--eviction-config", "{}"))
        window = typed.get("--eviction-window")
        seconds = None if window is None else _seconds(window)
        _hole_filling(typed.get("--hole-filling", HOLE_FILLING[0]))
        if plain:
            # Upstream lets dotted parameters replace those in JSON.
            validate_eviction(policy, parameters or config, seconds)
    except (argparse.ArgumentTypeError, ValueError) as error:
        _exit(error)


def add_eviction_args(
    group: argparse._ArgumentGroup, cache_kwargs: dict[str, dict[str, Any]]
) -> None:
    """Add the flags to upstream's group of cache arguments.

    Args:
        group: Where to add them.
        cache_kwargs: argparse keywords that upstream made of `CacheConfig`.

    """
    summaries = "; ".join(_summary(name) for name in policy_names())
    adaptive = f"{MANAGER} shadows several of them and follows the one that hits most"
    group.add_argument(
        "--eviction-policy",
        **cache_kwargs["eviction_policy"]
        | {
            "type": _policy_name,
            "metavar": "NAME",
            "help": f"{cache_kwargs['eviction_policy']['help']}\n\n"
            f"Evicted first: {summaries}. {adaptive}.".replace("%", "%%"),
        },
    )
    group.add_argument(
        "--eviction-config",
        **cache_kwargs["eviction_config"] | {"type": _json_object, "metavar": "JSON"},
    )
    group.add_argument(
        "--eviction-window",
        **cache_kwargs["eviction_window"] | {"type": _seconds, "metavar": "SECONDS"},
    )
    group.add_argument(
        "--eviction-trace-file",
        **cache_kwargs["eviction_trace_file"] | {"metavar": "PATH"},
    )
    hole_filling = dict(cache_kwargs["hole_filling"])
    hole_filling.pop("choices", None)
    group.add_argument(
        "--hole-filling",
        **hole_filling
        | {"type": _hole_filling, "metavar": "{" + ",".join(HOLE_FILLING) + "}"},
    )


def public_info(info: dict[str, str]) -> dict[str, str]:
    """Leave out what must not become a label of `vllm:cache_config_info`.

    A label has few values. Parameters have many, and paths are no one's business.
    """
    private = ("eviction_config", "eviction_trace_file")
    return {key: value for key, value in info.items() if key not in private}


def _summary(name: str) -> str:
    try:
        return f"{name}, {get_policy(name).summary}"
    except ValueError:
        return f"{name}, a plug-in that cannot be loaded"


def _exit(error: Exception) -> NoReturn:
    print(f"vllm: error: {error}", file=sys.stderr)
    raise SystemExit(2) from None


def _config_class(policy: str) -> type:
    return AdaptiveConfig if policy == MANAGER else get_policy(policy).config


def _policy_name(value: str) -> str:
    try:
        check_live(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return value


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


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(
            f"--eviction-window is {value!r}: must be more than 0 seconds."
        )
    return seconds


def _hole_filling(value: str) -> str:
    if value not in HOLE_FILLING:
        raise argparse.ArgumentTypeError(
            f"--hole-filling is {value!r}: must be one of "
            f"{', '.join(HOLE_FILLING)}.{nearest(value, list(HOLE_FILLING))}"
        )
    return value


def _unknown_parameter(policy: str, key: str, names: list[str]) -> str:
    others = []
    for other in [*policy_names(), MANAGER]:
        try:
            config_class = _config_class(other)
        except ValueError:
            continue  # a plug-in that cannot be loaded
        if is_dataclass(config_class) and key in (
            field.name for field in fields(config_class)
        ):
            others.append(other)
    takes = f"it takes {', '.join(names)}" if names else "it takes no parameters"
    belongs = f" {key!r} is a parameter of {', '.join(others)}." if others else ""
    return (
        f"Eviction policy {policy!r} has no parameter {key!r}: "
        f"{takes}.{belongs}{nearest(key, names)}"
    )


def _allowed(hint: Any) -> str:
    """Put a type hint into words: ``a number, more than 0 and less than 1``."""
    if get_origin(hint) in (Union, UnionType):
        arms = [arm for arm in get_args(hint) if arm is not NoneType]  # the default
        return " or ".join(map(_allowed, arms))
    literals = [arm for arm in (hint, *get_args(hint)) if get_origin(arm) is Literal]
    if literals:
        return "one of " + ", ".join(map(str, get_args(literals[0])))
    kind = getattr(hint, "__origin__", hint)
    words = {
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        list: "a list",
        str: "a text",
    }
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
