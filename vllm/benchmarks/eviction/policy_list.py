# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Policies as written on the lab's command line: `lru,s3fifo:promotion=2,adaptive`.

Checked by the same code as `--eviction-policy` and `--eviction-config`, before a
trace is read.
"""

import json
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.eviction.adaptive_config import resolve_candidates
from vllm.v1.core.eviction.config import parse_config, validate_eviction
from vllm.v1.core.eviction.registry import MANAGER, get_policy, nearest, policy_names

ORACLES = {
    "belady": "the block whose next use is farthest; may not keep a block at all",
    "belady-compute": "the block needed last for what it costs; leaves holes",
    "ilp": "none that the optimum keeps, by linear programming; leaves holes",
    "ilp-prefix": "the same without holes; very small traces",
    "infinite": "none: keeps everything, whatever the capacity",
}
"""Names of the lab only: the registry, and so the engine, does not know them."""

PEERS = {
    "lrb": "what a model says is needed last; libCacheSim's, no block is ever in use",
    "3lcache": "the same by another model; libCacheSim's, no block is ever in use",
}
"""Learned policies of another simulator, without the pool model; see `peers.py`."""


@dataclass(frozen=True)
class LabPolicy:
    """A policy to replay.

    Attributes:
        label: As written; names its rows.
        name: A registered policy, `adaptive`, or an oracle.
        config: As in `--eviction-config`.

    """

    label: str
    name: str
    config: dict[str, Any]

    @property
    def oracle(self) -> bool:
        """Whether it is no policy but a bound, computed from the whole trace."""
        return self.name in ORACLES

    @property
    def peer(self) -> bool:
        """Whether another simulator runs it."""
        return self.name in PEERS

    @property
    def timeless(self) -> bool:
        """Whether its replay knows no time: one request after the other."""
        return self.oracle or self.peer

    @property
    def offline(self) -> bool:
        """Whether the engine can not run it."""
        return self.timeless or (self.name != MANAGER and get_policy(self.name).offline)


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
        names = [*policy_names(offline=True), MANAGER, *ORACLES, *PEERS]
        if name not in names:
            raise ValueError(
                f"Unknown eviction policy {name!r}: choose from {', '.join(names)}."
                f"{nearest(name, names)}"
            )
        if name in ORACLES or name in PEERS:
            if config:
                raise ValueError(f"--policies has {label!r}: {name} has no parameters.")
        elif name == MANAGER:
            validate_eviction(name, config, window)
        else:
            get_policy(name)
            parse_config(name, config)
        policies.append(LabPolicy(label, name, config))
    return policies


def candidates(text: str) -> list[LabPolicy]:
    """Read the policies that `advise` compares; `adaptive` goes without saying.

    Raises:
        ValueError: One line.

    """
    policies = [each for each in parse_policies(text) if each.name != MANAGER]
    for each in policies:
        if each.offline:
            raise ValueError(
                f"--policies has {each.label!r}: advise compares what an engine can "
                "run, and replays the oracles anyway."
            )
    if not policies:
        raise ValueError(f"--policies is {text}: must name a policy to compare with.")
    if len(policies) > 1:
        resolve_candidates([{"name": each.name, **each.config} for each in policies])
    return policies


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
