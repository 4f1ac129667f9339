# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Synthetic traffic of three kinds of sessions, in any mix.

Single-turn requests share popular system prompts; chats grow by a turn a minute;
agents grow by a step every few seconds. The mix of the three decides which policy
is right, which is the point of the exercise. Deterministic, given the seed.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace import Trace


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
        if min(self.single, self.chat, self.agent) < 0 or abs(total - 100) > 0.01:
            raise ValueError(
                f"The shares {self} sum to {total:g}: must be 0 or more, sum to 100."
            )

    def __str__(self) -> str:
        return f"{self.single:.0f}/{self.chat:.0f}/{self.agent:.0f}"


@dataclass(frozen=True)
class Workload:
    """Parameters of the traffic. Lengths in tokens, times in seconds.

    A length or a time is log-normal with the median given and the sigma beside it;
    numbers of turns are geometric with the mean given.
    """

    rate: float = 1.5  # requests a second
    block_size: int = 16
    max_tokens: int = 16384  # a session ends before it grows beyond this
    prefill_rate: float = 8000.0  # paces the turns of a session, as the engine would
    decode_seconds: float = 0.02

    services: int = 100  # kinds of single-turn request, each with a system prompt
    service_zipf: float = 1.0
    service_prompt: float = 1000
    service_prompt_sigma: float = 0.6
    single_input: float = 500
    single_input_sigma: float = 0.8
    single_output: float = 150

    chat_turns: float = 4
    chat_prompts: int = 4  # system prompts that chats share
    chat_prompt: float = 200
    chat_first_input: float = 300
    chat_input: float = 150
    chat_input_sigma: float = 1.0
    chat_output: float = 250
    chat_gap: float = 60
    chat_gap_sigma: float = 1.0

    agent_steps: float = 15
    agent_apps: int = 8  # system prompts that agents share
    agent_prompt: float = 2000
    agent_first_input: float = 1500
    agent_input: float = 400
    agent_input_sigma: float = 1.0
    agent_output: float = 120
    agent_gap: float = 6
    agent_gap_sigma: float = 0.8


@dataclass(frozen=True)
class Preset:
    """A workload with the pool that it was fitted to.

    Attributes:
        workload: The traffic.
        num_blocks: Blocks of the pool.
        promotion: Of S3-FIFO, in tables of this preset.

    """

    workload: Workload
    num_blocks: int
    promotion: int


P1 = Preset(
    Workload(
        services=60,
        service_zipf=0.6,
        single_input=1482,
        chat_turns=6,
        chat_prompt=500,
        chat_first_input=864,
        chat_input=432,
        chat_output=150,
        chat_gap_sigma=0.3,
        agent_steps=5,
        agent_apps=4,
        agent_prompt=1000,
        agent_first_input=2042,
        agent_gap_sigma=1.0,
    ),
    num_blocks=13_653,
    promotion=2,
)
"""Fitted to the shape of the table in the WAKMan paper."""

P0 = Preset(Workload(), num_blocks=6_000, promotion=1)
"""A first guess, not fitted: the control."""

PRESETS = {
    "P1": P1,
    "P0": P0,
    "half": replace(P1, num_blocks=P1.num_blocks // 2),
}

MIXES = [
    Mix(*shares)
    for shares in (
        (100, 0, 0),
        (0, 100, 0),
        (0, 0, 100),
        (50, 50, 0),
        (50, 0, 50),
        (0, 50, 50),
        (33.3, 33.3, 33.4),
        (80, 10, 10),
        (10, 80, 10),
        (10, 10, 80),
        (60, 20, 20),
        (20, 60, 20),
        (20, 20, 60),
        (75, 25, 0),
        (75, 0, 25),
        (25, 75, 0),
        (0, 75, 25),
        (25, 0, 75),
        (0, 25, 75),
        (40, 40, 20),
    )
]

_PURE = {
    "A": Mix(0, 0, 100),
    "M": Mix(0, 100, 0),
    "S": Mix(100, 0, 0),
    "E": Mix(33.3, 33.3, 33.4),
    "a": Mix(0, 30, 70),
    "s": Mix(80, 15, 5),
}
DRIFTS = ("AMAMAM", "MAMAMA", "ASMASM", "ASASAS", "asas", "EASEMA")
"""Patterns of drift: a letter is a mix that lasts `DRIFT_SECONDS`."""
DRIFT_SECONDS = 1200.0


def constant(mix: Mix, seconds: float = 3600.0) -> list[tuple[float, Mix]]:
    """The schedule of one mix throughout."""
    return [(seconds, mix)]


def drift(pattern: str, seconds: float = DRIFT_SECONDS) -> list[tuple[float, Mix]]:
    """The schedule of a pattern of `DRIFTS`."""
    return [(seconds, _PURE[letter]) for letter in pattern]


def generate(
    workload: Workload, schedule: list[tuple[float, Mix]], seed: int = 1
) -> Trace:
    """Draw a trace.

    Args:
        workload: Parameters.
        schedule: How long (seconds) each mix lasts; sessions start at its rate, and
            go on into the next.
        seed: Same seed, same trace.

    Returns:
        Requests up to the end of the schedule.

    """
    return _Generator(workload, np.random.default_rng([seed, 7919])).run(schedule)


class _Generator:
    def __init__(self, workload: Workload, rng: np.random.Generator):
        self._w = workload
        self._rng = rng
        # The services are the same under every seed: they are the setting.
        lengths = np.random.default_rng(777).normal(size=workload.services)
        self._service_prompts = np.minimum(
            6000,
            workload.service_prompt * np.exp(workload.service_prompt_sigma * lengths),
        )
        weights = np.arange(1, workload.services + 1) ** -workload.service_zipf
        self._popularity = np.cumsum(weights / weights.sum())
        self._sessions = 0
        self._rows: list[tuple[float, int, int, int]] = []
        self._keys: list[NDArray[np.uint64]] = []

    def run(self, schedule: list[tuple[float, Mix]]) -> Trace:
        w = self._w
        end = sum(seconds for seconds, _ in schedule)
        start = 0.0
        for seconds, mix in schedule:
            for share, turns, session in (
                (mix.single, 1.0, self._single),
                (mix.chat, w.chat_turns, self._chat),
                (mix.agent, w.agent_steps, self._agent),
            ):
                count = self._rng.poisson(w.rate * share / 100 / turns * seconds)
                for at in np.sort(self._rng.uniform(start, start + seconds, count)):
                    session(float(at), end)
            start += seconds
        order = np.argsort([row[0] for row in self._rows], kind="stable")
        rows = [self._rows[i] for i in order]
        keys = [self._keys[i] for i in order]
        offsets = np.zeros(len(rows) + 1, dtype=np.uint64)
        np.cumsum([len(key) for key in keys], out=offsets[1:])
        return Trace(
            block_size=w.block_size,
            arrivals=np.array([row[0] for row in rows], dtype=np.float64),
            prompt_tokens=np.array([row[1] for row in rows], dtype=np.uint32),
            output_tokens=np.array([row[2] for row in rows], dtype=np.uint32),
            offsets=offsets,
            keys=np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64),
            sessions=np.array([row[3] for row in rows], dtype=np.int64),
        )

    def _single(self, at: float, end: float) -> None:
        w = self._w
        service = int(np.searchsorted(self._popularity, self._rng.random()))
        service = min(service, w.services - 1)
        self._session(
            at,
            end,
            prompt=float(self._service_prompts[service]),
            prompt_id=1_000_000 + service,
            turns=1,
            inputs=(w.single_input, w.single_input, w.single_input_sigma),
            first_sigma=w.single_input_sigma,
            output=(w.single_output, 0.6),
            gap=(0.0, 0.0),
        )

    def _chat(self, at: float, end: float) -> None:
        w = self._w
        self._session(
            at,
            end,
            prompt=w.chat_prompt,
            prompt_id=2_000_000 + int(self._rng.integers(w.chat_prompts)),
            turns=self._turns(w.chat_turns),
            inputs=(w.chat_first_input, w.chat_input, w.chat_input_sigma),
            first_sigma=w.chat_input_sigma,
            output=(w.chat_output, 0.7),
            gap=(w.chat_gap, w.chat_gap_sigma),
        )

    def _agent(self, at: float, end: float) -> None:
        w = self._w
        self._session(
            at,
            end,
            prompt=w.agent_prompt,
            prompt_id=3_000_000 + int(self._rng.integers(w.agent_apps)),
            turns=self._turns(w.agent_steps),
            inputs=(w.agent_first_input, w.agent_input, w.agent_input_sigma),
            first_sigma=0.8,
            output=(w.agent_output, 0.7),
            gap=(w.agent_gap, w.agent_gap_sigma),
        )

    def _turns(self, mean: float) -> int:
        return min(int(self._rng.geometric(1 / mean)) if mean > 1 else 1, 400)

    def _session(
        self,
        at: float,
        end: float,
        prompt: float,
        prompt_id: int,
        turns: int,
        inputs: tuple[float, float, float],
        first_sigma: float,
        output: tuple[float, float],
        gap: tuple[float, float],
    ) -> None:
        w = self._w
        normal = self._rng.normal(size=(3, turns))
        sigma = np.full(turns, inputs[2])
        sigma[0] = first_sigma
        median = np.full(turns, inputs[1])
        median[0] = inputs[0]
        new = np.maximum(1.0, median * np.exp(sigma * normal[0]))
        out = np.maximum(4.0, output[0] * np.exp(output[1] * normal[1]))
        gaps = gap[0] * np.exp(gap[1] * normal[2])
        totals = prompt + np.cumsum(new + out)
        prompts = totals - out
        times = at + np.concatenate(
            (
                [0.0],
                np.cumsum(out * w.decode_seconds + new / w.prefill_rate + gaps)[:-1],
            )
        )
        fits = (totals < w.max_tokens) & (times < end)
        kept = turns if fits.all() else int(np.argmin(fits))
        if kept == 0:
            return
        session = self._sessions = self._sessions + 1
        keys = self._block_keys(
            int(totals[kept - 1]) // w.block_size,
            int(prompt) // w.block_size,
            prompt_id,
        )
        for i in range(kept):
            self._rows.append((float(times[i]), int(prompts[i]), int(out[i]), session))
            self._keys.append(keys[: int(totals[i]) // w.block_size])

    def _block_keys(
        self, blocks: int, shared: int, prompt_id: int
    ) -> NDArray[np.uint64]:
        """Keys of a session's blocks; the shared prompt's are those of its id."""
        position = np.arange(blocks, dtype=np.uint64)
        owner = np.where(position < shared, np.uint64(prompt_id << 1), np.uint64(0))
        owner[shared:] = np.uint64(self._sessions << 1 | 1)
        keys = owner << np.uint64(20) | position
        # A mixing step, because a policy's key is a hash.
        keys *= np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
        return np.maximum(keys, np.uint64(1))
