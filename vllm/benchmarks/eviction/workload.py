# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What synthetic traffic is made of: a mix of three kinds of sessions, and lengths.

Single-turn requests share popular system prompts; chats grow by a turn a minute;
agents grow by a step every few seconds. Every parameter is a field here with its unit,
its least value and its meaning, and so an option of `vllm bench eviction generate`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import NormalDist, fmean
from typing import Any

LEAST_OUTPUT = 4.0  # tokens of an answer
_MOST_TOKENS = 1 << 31  # of a session; a trace counts in 32 bits


@dataclass(frozen=True)
class Mix:
    """Shares of requests, in percent; they sum to 100.

    Attributes:
        single: Single-turn requests.
        chat: Turns of chats.
        agent: Steps of agents.

    """

    single: float
    chat: float
    agent: float

    def __post_init__(self) -> None:
        total = self.single + self.chat + self.agent
        least = min(self.single, self.chat, self.agent)
        if not (least >= 0 and abs(total - 100) <= 0.01):  # nan is no share
            raise ValueError(
                f"The shares {self} sum to {total:g}: must be 0 or more, sum to 100."
            )

    def __str__(self) -> str:
        return f"{self.single:.0f}/{self.chat:.0f}/{self.agent:.0f}"


def _option(default: Any, text: str, least: float = 0, *, above: bool = False) -> Any:
    """A parameter: its default, what it is, and the least that it may be."""
    return field(
        default=default, metadata={"help": text, "least": least, "above": above}
    )


def _length(default: float, text: str) -> Any:
    return _option(default, f"tokens, median; {text}", 0, above=True)


def _sigma(default: float, of: str) -> Any:
    return _option(default, f"sigma of the log-normal {of}")


@dataclass(frozen=True)
class Workload:
    """Parameters of the traffic. Lengths in tokens, times in seconds.

    A length or a time is log-normal with the median given and the sigma beside it. A
    number of turns has the mean given and is geometric, or, with a sigma, log-normal.

    Raises:
        ValueError: A parameter is out of its range; one line.

    """

    rate: float = _option(1.5, "requests a second", 0, above=True)
    block_size: int = _option(16, "tokens of a block", 1)
    max_tokens: int = _option(
        16384, "tokens; a session ends before it grows beyond this", 2
    )
    max_turns: int = _option(400, "turns that a session has at most", 1)
    prefill_rate: float = _option(
        8000.0, "tokens a second; paces the turns of a session", 0, above=True
    )
    decode_seconds: float = _option(0.02, "seconds an output token; paces the turns")

    services: int = _option(
        100, "kinds of single-turn requests, each with a system prompt", 1
    )
    service_zipf: float = _option(1.0, "exponent of the services' popularity")
    service_prompt: float = _length(1000, "system prompt of a service")
    service_prompt_sigma: float = _sigma(0.6, "system prompts of services")
    service_prompt_max: float = _option(6000, "tokens; longest of these", 0, above=True)
    single_input: float = _length(500, "what follows it")
    single_input_sigma: float = _sigma(0.8, "inputs of single turns")
    single_output: float = _length(150, "answer to a single turn")
    single_output_sigma: float = _sigma(0.6, "answers to single turns")

    chat_turns: float = _option(4, "mean turns of a chat", 1)
    chat_turns_sigma: float = _option(
        0.0, "sigma of log-normal turns of chats; 0: geometric"
    )
    chat_prompts: int = _option(4, "system prompts that chats share", 1)
    chat_prompt: float = _option(200, "tokens of each of these")
    chat_first_input: float = _length(300, "first message of a chat")
    chat_input: float = _length(150, "further messages")
    chat_input_sigma: float = _sigma(1.0, "messages")
    chat_output: float = _length(250, "answer in a chat")
    chat_output_sigma: float = _sigma(0.7, "answers in chats")
    chat_gap: float = _option(60, "seconds, median; from an answer to the next message")
    chat_gap_sigma: float = _sigma(1.0, "gaps of chats")

    agent_steps: float = _option(15, "mean steps of an agent", 1)
    agent_steps_sigma: float = _option(
        0.0, "sigma of log-normal steps of agents; 0: geometric"
    )
    agent_apps: int = _option(8, "system prompts that agents share", 1)
    agent_prompt: float = _option(2000, "tokens of each of these")
    agent_first_input: float = _length(1500, "task of an agent")
    agent_first_input_sigma: float = _sigma(0.8, "tasks")
    agent_input: float = _length(400, "what a tool gives")
    agent_input_sigma: float = _sigma(1.0, "what tools give")
    agent_output: float = _length(120, "answer of an agent's step")
    agent_output_sigma: float = _sigma(0.7, "answers of agents' steps")
    agent_gap: float = _option(6, "seconds, median; that a tool takes")
    agent_gap_sigma: float = _sigma(0.8, "times of tools")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata["least"]
            above = each.metadata["above"]
            if not math.isfinite(value) or value < least or (above and value == least):
                raise ValueError(
                    f"{each.name} is {value:g}: must be {'more than ' if above else ''}"
                    f"{least:g}{'' if above else ' or more'}."
                )
        if self.max_tokens > _MOST_TOKENS:
            raise ValueError(
                f"max_tokens is {self.max_tokens}: must be {_MOST_TOKENS} at most."
            )
        if self.agent_prompt >= self.max_tokens or self.chat_prompt >= self.max_tokens:
            raise ValueError(
                f"max_tokens is {self.max_tokens}: must be more than the system prompts"
                f" of {self.chat_prompt:g} and {self.agent_prompt:g} tokens."
            )

    def check_fits(self, mix: Mix) -> None:
        """Refuse a mix with sessions of which not even half can begin.

        What is too long is left out, and the rate of requests falls by it.

        Raises:
            ValueError: One line.

        """
        service = min(self.service_prompt, self.service_prompt_max)
        for share, kind, prompt, message, answer in (
            (
                mix.single,
                "single turns",
                service,
                self.single_input,
                self.single_output,
            ),
            (
                mix.chat,
                "chats",
                self.chat_prompt,
                self.chat_first_input,
                self.chat_output,
            ),
            (
                mix.agent,
                "agents",
                self.agent_prompt,
                self.agent_first_input,
                self.agent_output,
            ),
        ):
            least = prompt + max(1.0, message) + max(LEAST_OUTPUT, answer)
            if share > 0 and least >= self.max_tokens:
                raise ValueError(
                    f"max_tokens is {self.max_tokens}: must be more than the first "
                    f"turn of {kind}, {least:g} tokens as a rule."
                )

    def scaled(self, factor: float) -> "Workload":
        """The same sessions with all lengths multiplied; times stay.

        Args:
            factor: More than 0. Scale the pool by it, too, and what fits stays alike.

        """
        names = [each.name for each in fields(self)]
        lengths = [
            name
            for name in names
            if name.endswith(("_input", "_output", "_prompt", "_prompt_max"))
        ]
        changes: dict[str, Any] = {
            name: getattr(self, name) * factor for name in lengths
        }
        changes["max_tokens"] = max(2, round(self.max_tokens * factor))
        return replace(self, **changes)

    def mean_turns(self, mean: float, sigma: float) -> float:
        """What numbers of turns come to when drawn: whole, and no more than the most.

        Args:
            mean: As asked for.
            sigma: 0 where they are geometric.

        """
        if sigma == 0:
            return mean * (1 - (1 - 1 / mean) ** self.max_turns)
        draws = (NormalDist().inv_cdf((i + 0.5) / 4096) for i in range(4096))
        return fmean(self.log_normal_turns(mean, sigma, draw) for draw in draws)

    def log_normal_turns(self, mean: float, sigma: float, normal: float) -> int:
        """A number of turns, from a normal draw."""
        turns = round(mean * math.exp(sigma * normal - sigma**2 / 2))
        return min(max(turns, 1), self.max_turns)


Schedule = Sequence[tuple[float, Mix]]
"""How long (seconds) each mix lasts, one after the other."""


@dataclass(frozen=True)
class Preset:
    """A workload with what it was fitted to.

    Attributes:
        workload: The traffic.
        num_blocks: Blocks of the pool.
        promotion: Of S3-FIFO, in tables of this preset.
        mix: Where no other is asked for.
        summary: One line.

    """

    workload: Workload
    num_blocks: int
    promotion: int
    mix: Mix = Mix(33.3, 33.3, 33.4)
    summary: str = ""
