# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Policies as written on the lab's command line: `lru,s3fifo:promotion=2,adaptive`.

Checked by the same code as `--eviction-policy` and `--eviction-config`, before a
trace is read.
"""

import json
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.eviction.config import parse_config, validate_eviction
from vllm.v1.core.eviction.registry import MANAGER, get_policy, nearest, policy_names


@dataclass(frozen=True)
class LabPolicy:
    """A policy to replay.

    Attributes:
        label: As written; names its rows.
        name: A registered policy, or `adaptive`.
        config: As in `--eviction-config`.

    """

    label: str
    name: str
    config: dict[str, Any]


def parse_policies(text: str, window: float | None = None) -> list[LabPolicy]:
    """Read a list of policies.

    Args:
        text: Names separated by commas, each with its parameters after colons.
        window: `--window`, seconds; only `adaptive` has one.

    Raises:
        ValueError: One line.

    """
    policies = []
    for label in dict.fromkeys(word.strip() for word in text.split(",")):
        name, *pairs = label.split(":")
        config: dict[str, Any] = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise ValueError(
                    f"--policies has {label!r}: parameters are written "
                    "name:parameter=value."
                )
            config[key] = _value(value)
        names = [*policy_names(), MANAGER]
        if name not in names:
            raise ValueError(
                f"Unknown eviction policy {name!r}: choose from {', '.join(names)}."
                f"{nearest(name, names)}"
            )
        if name == MANAGER:
            validate_eviction(name, config, window)
        else:
            get_policy(name)
            parse_config(name, config)
        policies.append(LabPolicy(label, name, config))
    return policies


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
