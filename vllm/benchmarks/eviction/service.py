# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How fast the replayed engine is: for how long a request holds its blocks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm._eviction_C import ServiceModel


@dataclass(frozen=True)
class Service:
    """A model of service time.

    A request is admitted in order of arrival while fewer than `max_running` run and its
    prompt fits into the pool. It takes `base` seconds, the time to compute the tokens
    that it does not hit, and the time of its output.

    Attributes:
        base: Seconds.
        prefill_rate: Prompt tokens a second.
        decode_seconds: Of an output token.
        max_running: Requests.

    """

    base: float = 0.2
    prefill_rate: float = 8000.0
    decode_seconds: float = 0.02
    max_running: int = 64

    def __post_init__(self) -> None:
        for name, least, exclusive in (
            ("base", 0, False),
            ("prefill_rate", 0, True),
            ("decode_seconds", 0, False),
            ("max_running", 1, False),
        ):
            value = getattr(self, name)
            if not (value > least if exclusive else value >= least):
                bound = "more than 0" if exclusive else f"{least} or more"
                flag = _FLAGS.get(name, name).replace("_", "-")
                raise ValueError(f"--{flag} is {value:g}: must be {bound}.")

    def native(self) -> "ServiceModel":
        """What the simulator takes."""
        from vllm._eviction_C import ServiceModel

        return ServiceModel(
            self.base, self.prefill_rate, self.decode_seconds, self.max_running
        )


_FLAGS = {"base": "base_seconds"}
