# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the adaptive manager decided, for the operator: kept, and told in the log."""

from collections import deque
from typing import Any, Literal

from vllm.logger import init_logger

from vllm.v1.core.eviction.rules import Decision

logger = init_logger(__name__)

_KEPT = 32


class DecisionLog:
    """The last decisions. A change of policy is a line of the log, others at debug.

    Args:
        labels: Of the candidates.
        objective: What they are compared by.

    Attributes:
        entries: Fit for JSON, the oldest first.

    """

    def __init__(self, labels: list[str], objective: Literal["tokens", "compute"]):
        self.entries: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._labels = labels
        self._unit, self._rates = (
            ("tokens", "hit rates")
            if objective == "tokens"
            else ("tokens' worth of compute", "compute savings")
        )

    def add(self, decision: Decision, live: int, switched: bool) -> None:
        """Keep and tell one.

        Args:
            decision: Of the rule.
            live: Index of the candidate that was live.
            switched: Whether the choice is followed by a change of policy.

        """
        rates = {
            label: round(rate, 4)
            for label, rate in zip(self._labels, decision.hit_rates, strict=True)
        }
        entry = {
            "end": decision.end,
            "seconds": decision.end - decision.start,
            "query_tokens": round(decision.query_tokens),
            "hit_rates": rates,
            "live": self._labels[live],
            "choice": self._labels[decision.choice],
            "switched": switched,
        }
        self.entries.append(entry)
        log, outcome = (
            (logger.info, "%s -> %s")
            if switched
            else (logger.debug, "%s stays, best %s")
        )
        log(
            f"Prefix cache eviction policy: {outcome} (%.0f s, %d %s; shadow %s: %s).",
            entry["live"],
            entry["choice"],
            entry["seconds"],
            entry["query_tokens"],
            self._unit,
            self._rates,
            ", ".join(f"{label} {100 * rate:.1f}%" for label, rate in rates.items()),
        )
