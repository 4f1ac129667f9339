# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws synthetic traffic: sessions, their requests, and the blocks of these.

The one generator: the benchmarks take its traces in memory, and `vllm bench eviction
generate` writes what it yields to files. Deterministic, given the seed.

Requests come in order of arrival, a piece of the schedule at a time: what is kept is a
piece, and those sessions that go on into the next. A request holds no block ids but
what they are made from, because a million ids cost more than all draws.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.workload import LEAST_OUTPUT, Mix, Schedule, Workload

_PIECE = 3600.0  # seconds; a longer part of a schedule is drawn in pieces
_MOST_IN_VAIN = 10_000  # sessions that are drawn one after the other and do not fit


@dataclass(slots=True)
class Session:
    """A session's requests, and the place of its blocks among all.

    Attributes:
        number: From 1, in the order drawn.
        prompt_id: Which system prompt it begins with.
        shared: Full blocks of that prompt.
        starts: Seconds from the session's start, of each request.
        prompts: Tokens of each request's prompt, all earlier turns included.
        outputs: Tokens of each answer.
        ends: Tokens of prompt and answer together.
        shared_first: Number of the first block of the system prompt.
        own_first: Number of the first block after it; numbers of its blocks follow,
            and then one for the partial last block of each prompt.

    """

    number: int
    prompt_id: int
    shared: int
    starts: NDArray[np.float64]
    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    ends: NDArray[np.int64]
    shared_first: int = 0
    own_first: int = 0

    def blocks(self, block_size: int) -> int:
        """Full blocks of all that it says and hears."""
        return int(self.ends[-1]) // block_size if len(self.ends) else 0


@dataclass(slots=True, order=True)
class Request:
    """One request; ordered by arrival.

    Attributes:
        arrival: Seconds.
        serial: Breaks ties, in the order drawn.
        turn: Within its session, from 0.
        session: That it belongs to.

    """

    arrival: float
    serial: int
    turn: int
    session: Session

    @property
    def prompt_tokens(self) -> int:
        """Tokens, all earlier turns included."""
        return int(self.session.prompts[self.turn])

    @property
    def output_tokens(self) -> int:
        """Tokens."""
        return int(self.session.outputs[self.turn])

    def runs(self, block_size: int) -> list[tuple[int, int]]:
        """Numbers of the prompt's blocks, as (first, how many) of consecutive ones.

        A partial last block has a number that is used once, as in published traces.
        """
        session = self.session
        full, tail = divmod(self.prompt_tokens, block_size)
        shared = min(full, session.shared)
        own = session.own_first
        runs = [(session.shared_first, shared), (own, full - shared)]
        if tail:
            places = session.blocks(block_size) - session.shared
            runs.append((own + places + self.turn, 1))
        return [run for run in runs if run[1] > 0]


def stream(workload: Workload, schedule: Schedule, seed: int = 1) -> Iterator[Request]:
    """Draw requests, in order of arrival.

    Args:
        workload: Parameters.
        schedule: How long each mix lasts; sessions start at its rate, and go on into
            the next, up to the end of the schedule.
        seed: Same seed, same requests.

    """
    drawing = _Drawing(workload, seed)
    end = sum(seconds for seconds, _ in schedule)
    start = 0.0
    waiting: list[Request] = []
    for seconds, mix in _pieces(schedule):
        for share, mean, draw in drawing.kinds(mix):
            count = drawing.rng.poisson(workload.rate * share / 100 / mean * seconds)
            starts = drawing.rng.uniform(start, start + seconds, count)
            for at in np.sort(starts):
                waiting += drawing.requests(draw(), float(at), end)
        start += seconds
        waiting.sort()
        first_later = next(
            (i for i, each in enumerate(waiting) if each.arrival >= start), len(waiting)
        )
        yield from waiting[:first_later]
        del waiting[:first_later]
    yield from waiting


def stream_concurrent(
    workload: Workload,
    mix: Mix,
    sessions: int,
    concurrency: int,
    comparable_up_to: int | None = None,
    seed: int = 1,
) -> Iterator[Request]:
    """Draw requests of so many sessions at any time: one starts when another ends.

    The sessions, with their lengths and gaps, depend on the seed alone, so that
    traces of several concurrencies differ in nothing else ("When Fancy Eviction
    Fails", appendix B). There the last sessions run almost alone at any high
    concurrency, and are cut at the same request in all traces.

    Args:
        workload: Parameters; not its rate.
        mix: Of requests.
        sessions: How many.
        concurrency: How many at a time.
        comparable_up_to: The highest concurrency of the comparison: sessions are cut
            where none is left to start at that one. Default: `concurrency`.
        seed: Same seed, same sessions.

    """
    highest = max(concurrency, comparable_up_to or concurrency)
    slots = _Slots(highest)
    places = [slots.place(each) for each in _sessions(workload, mix, sessions, seed)]
    last = places[-1] if places else 0.0  # from here on there is none left to start
    slots = _Slots(concurrency)
    drawing = _Drawing(workload, seed)
    waiting: list[Request] = []
    for i, session in enumerate(_sessions(workload, mix, sessions, seed, drawing)):
        kept = max(1, int(np.searchsorted(session.starts + places[i], last, "right")))
        _cut(session, kept)
        at = slots.place(session)
        for request in drawing.requests(session, at, np.inf):
            heapq.heappush(waiting, request)
        while waiting and waiting[0].arrival < at:
            yield heapq.heappop(waiting)
    while waiting:
        yield heapq.heappop(waiting)


def to_trace(requests: Iterable[Request], block_size: int) -> Trace:
    """Put requests into columns.

    Args:
        requests: In order of arrival.
        block_size: Tokens.

    """
    rows = list(requests)
    made: dict[int, NDArray[np.uint64]] = {}
    keys = []
    for each in rows:
        session = each.session
        of_session = made.get(session.number)
        if of_session is None:
            of_session = made[session.number] = _block_keys(session, block_size)
        keys.append(of_session[: int(session.ends[each.turn]) // block_size])
        if each.turn + 1 == len(session.ends):
            del made[session.number]
    offsets = np.zeros(len(rows) + 1, dtype=np.uint64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return Trace(
        block_size=block_size,
        arrivals=np.array([each.arrival for each in rows], dtype=np.float64),
        prompt_tokens=np.array([each.prompt_tokens for each in rows], dtype=np.uint32),
        output_tokens=np.array([each.output_tokens for each in rows], dtype=np.uint32),
        offsets=offsets,
        keys=np.concatenate(keys) if keys else np.zeros(0, dtype=np.uint64),
        sessions=np.array([each.session.number for each in rows], dtype=np.int64),
    )


def _pieces(schedule: Schedule) -> Iterator[tuple[float, Mix]]:
    for seconds, mix in schedule:
        left = seconds
        while left > _PIECE:
            yield _PIECE, mix
            left -= _PIECE
        yield left, mix


def _sessions(
    workload: Workload,
    mix: Mix,
    count: int,
    seed: int,
    drawing: "_Drawing | None" = None,
) -> Iterator[Session]:
    drawing = drawing or _Drawing(workload, seed)
    kinds = [kind for kind in drawing.kinds(mix) if kind[0] > 0]
    weights = np.array([share / mean for share, mean, _ in kinds])
    bounds = np.cumsum(weights / weights.sum())
    in_vain = 0
    while count > 0:
        kind = int(np.searchsorted(bounds[:-1], drawing.rng.random(), "right"))
        session = kinds[kind][2]()
        if len(session.starts):
            in_vain, count = 0, count - 1
            yield session
            continue
        in_vain += 1  # its first prompt alone is too long
        if in_vain == _MOST_IN_VAIN:
            raise ValueError(
                f"--max-tokens is {workload.max_tokens}: no session begins with so few."
            )


class _Slots:
    """So many sessions at a time."""

    def __init__(self, count: int):
        self._free = [0.0] * count

    def place(self, session: Session) -> float:
        """When it starts, seconds: as soon as another has ended."""
        at = self._free[0]
        heapq.heapreplace(self._free, at + float(session.starts[-1]))
        return at


def _cut(session: Session, kept: int) -> None:
    session.starts = session.starts[:kept]
    session.prompts = session.prompts[:kept]
    session.outputs = session.outputs[:kept]
    session.ends = session.ends[:kept]


class _Drawing:
    """All that is drawn, in one order."""

    def __init__(self, workload: Workload, seed: int):
        self._w = workload
        self.rng = np.random.default_rng([seed, 7919])
        # The services are the same under every seed: they are the setting.
        lengths = np.random.default_rng(777).normal(size=workload.services)
        self._service_prompts = np.minimum(
            workload.service_prompt_max,
            workload.service_prompt * np.exp(workload.service_prompt_sigma * lengths),
        )
        weights = np.arange(1, workload.services + 1) ** -workload.service_zipf
        self._popularity = np.cumsum(weights / weights.sum())
        self._sessions = self._serial = self._blocks = 0
        self._prompts: dict[int, int] = {}

    def kinds(self, mix: Mix) -> list[tuple[float, float, Callable[[], Session]]]:
        """Share of requests, mean turns, and what draws a session, of each kind."""
        w = self._w
        return [
            (mix.single, 1.0, self._single),
            (mix.chat, w.mean_turns(w.chat_turns, w.chat_turns_sigma), self._chat),
            (mix.agent, w.mean_turns(w.agent_steps, w.agent_steps_sigma), self._agent),
        ]

    def requests(self, session: Session, at: float, end: float) -> Iterator[Request]:
        """Requests of a session that starts then, up to the end; numbers its blocks."""
        times = session.starts + at
        kept = int(np.searchsorted(times, end))
        if kept == 0:
            return
        _cut(session, kept)
        size = self._w.block_size
        self._sessions += 1
        session.number = self._sessions
        first = self._prompts.get(session.prompt_id)
        if first is None:
            first = self._prompts[session.prompt_id] = self._blocks
            self._blocks += session.shared
        session.shared_first, session.own_first = first, self._blocks
        self._blocks += session.blocks(size) - session.shared + kept
        for turn in range(kept):
            self._serial += 1
            yield Request(float(times[turn]), self._serial, turn, session)

    def _single(self) -> Session:
        w = self._w
        service = int(np.searchsorted(self._popularity, self.rng.random()))
        service = min(service, w.services - 1)
        return self._session(
            prompt=float(self._service_prompts[service]),
            prompt_id=1_000_000 + service,
            turns=1,
            inputs=(w.single_input, w.single_input, w.single_input_sigma),
            first_sigma=w.single_input_sigma,
            output=(w.single_output, w.single_output_sigma),
            gap=(0.0, 0.0),
        )

    def _chat(self) -> Session:
        w = self._w
        return self._session(
            prompt=w.chat_prompt,
            prompt_id=2_000_000 + int(self.rng.integers(w.chat_prompts)),
            turns=self._turns(w.chat_turns, w.chat_turns_sigma),
            inputs=(w.chat_first_input, w.chat_input, w.chat_input_sigma),
            first_sigma=w.chat_input_sigma,
            output=(w.chat_output, w.chat_output_sigma),
            gap=(w.chat_gap, w.chat_gap_sigma),
        )

    def _agent(self) -> Session:
        w = self._w
        return self._session(
            prompt=w.agent_prompt,
            prompt_id=3_000_000 + int(self.rng.integers(w.agent_apps)),
            turns=self._turns(w.agent_steps, w.agent_steps_sigma),
            inputs=(w.agent_first_input, w.agent_input, w.agent_input_sigma),
            first_sigma=w.agent_first_input_sigma,
            output=(w.agent_output, w.agent_output_sigma),
            gap=(w.agent_gap, w.agent_gap_sigma),
        )

    def _turns(self, mean: float, sigma: float) -> int:
        w = self._w
        if sigma > 0:
            return w.log_normal_turns(mean, sigma, self.rng.normal())
        return min(int(self.rng.geometric(1 / mean)) if mean > 1 else 1, w.max_turns)

    def _session(
        self,
        prompt: float,
        prompt_id: int,
        turns: int,
        inputs: tuple[float, float, float],
        first_sigma: float,
        output: tuple[float, float],
        gap: tuple[float, float],
    ) -> Session:
        w = self._w
        normal = self.rng.normal(size=(3, turns))
        sigma = np.full(turns, inputs[2])
        sigma[0] = first_sigma
        median = np.full(turns, inputs[1])
        median[0] = inputs[0]
        new = np.maximum(1.0, median * np.exp(sigma * normal[0]))
        out = np.maximum(LEAST_OUTPUT, output[0] * np.exp(output[1] * normal[1]))
        gaps = gap[0] * np.exp(gap[1] * normal[2])
        totals = prompt + np.cumsum(new + out)
        paces = out * w.decode_seconds + new / w.prefill_rate + gaps
        starts = np.concatenate(([0.0], np.cumsum(paces)[:-1]))
        fits = totals < w.max_tokens
        kept = turns if fits.all() else int(np.argmin(fits))
        return Session(
            number=0,
            prompt_id=prompt_id,
            shared=int(prompt) // w.block_size,
            starts=starts[:kept],
            prompts=(totals - out)[:kept].astype(np.int64),
            outputs=out[:kept].astype(np.int64),
            ends=totals[:kept].astype(np.int64),
        )


def _block_keys(session: Session, block_size: int) -> NDArray[np.uint64]:
    """Keys of a session's blocks; the shared prompt's are those of its id."""
    blocks = session.blocks(block_size)
    position = np.arange(blocks, dtype=np.uint64)
    owner = np.full(blocks, np.uint64(session.number << 1 | 1))
    owner[: session.shared] = np.uint64(session.prompt_id << 1)
    keys = owner << np.uint64(20) | position
    # A mixing step, because a policy's key is a hash.
    keys *= np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(29)
    return np.maximum(keys, np.uint64(1))
