# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The replayed engine: for how long a request holds its blocks, what it may reuse."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vllm._eviction_C import HoleRule, ServiceModel

    from vllm.benchmarks.eviction.cost_models import CostModel


@dataclass(frozen=True)
class Service:
    """A model of service time, and of prefill in steps.

    A request is admitted in order of arrival while fewer than `max_running` run and its
    prompt fits into the pool. It takes `base` seconds, the time to compute the tokens
    that it does not hit, and the time of its output.

    Holes are filled under policies that leave them. A cached run behind a hole is used
    when it saves more than the further steps of prefill cost that it takes.

    Attributes:
        base: Seconds.
        prefill_rate: Prompt tokens a second.
        decode_seconds: Of an output token.
        max_running: Requests.
        hole_filling: Whether holes are filled.
        prefill_budget: Tokens that a step computes at most. The default is vLLM's on a
            GPU that serves.
        hole_step: What a further step costs, in tokens at depth zero; by default what
            the cost model says.

    """

    base: float = 0.2
    prefill_rate: float = 8000.0
    decode_seconds: float = 0.02
    max_running: int = 64
    hole_filling: Literal["auto", "off"] = "auto"
    prefill_budget: int = 8192
    hole_step: float | None = None

    def __post_init__(self) -> None:
        for name, least, exclusive, most in (
            ("base", 0, False, _LONGEST),
            ("prefill_rate", 0, True, _MANY),
            ("decode_seconds", 0, False, _LONGEST),
            ("max_running", 1, False, _COUNTED),
            ("prefill_budget", 1, False, _COUNTED),
            ("hole_step", 0, False, _MANY),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not (value > least if exclusive else value >= least):
                bound = "more than 0" if exclusive else f"{least} or more"
            elif value > most:
                bound = f"at most {most:g}"
            else:
                continue
            flag = _FLAGS.get(name, name).replace("_", "-")
            raise ValueError(f"--{flag} is {value:g}: must be {bound}.")

    def native(self) -> "ServiceModel":
        """What the simulator takes."""
        from vllm._eviction_C import ServiceModel

        return ServiceModel(
            self.base, self.prefill_rate, self.decode_seconds, self.max_running
        )

    def hole_rule(self, cost: "CostModel", block_size: int) -> "HoleRule | None":
        """Which runs behind holes are used; None where no holes are filled.

        Args:
            cost: Of a block.
            block_size: Tokens.

        """
        from vllm._eviction_C import HoleRule

        if self.hole_filling == "off":
            return None
        step = cost.step_tokens if self.hole_step is None else self.hole_step
        return HoleRule.of_tokens(cost.native(), block_size, self.prefill_budget, step)


_FLAGS = {"base": "base_seconds"}
_LONGEST = 1e6  # seconds; a request that never ends would be replayed for ever
_COUNTED = 1_000_000_000  # the core counts in 32 bits
_MANY = 1e15
