# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""When does `adaptive` change the policy? Counts in, choice out.

A rule knows no clock, no pool and no scheduler: the engine and the lab use the
same ones. It is told what each candidate's shadow would have hit since it was last
asked, and names the candidate that should be live from now on.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Counts:
    """What the shadows counted since the last decision.

    Attributes:
        query_tokens: Prompt tokens of admitted requests; under the objective
            `compute` what computing their full blocks costs, in tokens as dear as the
            first ones.
        hit_tokens: Of each candidate, what of it would not have been computed.

    """

    query_tokens: int
    hit_tokens: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """The outcome of one look at the shadows.

    Attributes:
        choice: Index of the candidate that should be live.
        hit_rates: Of each candidate over what the rule looked at, 0 to 1.
        query_tokens: The tokens that the rates are of; discounted ones count less.
        start: Seconds; since when the rule looked.
        end: Seconds; now.

    """

    choice: int
    hit_rates: tuple[float, ...]
    query_tokens: float
    start: float
    end: float


class Rule(ABC):
    """Decides at times of its own choosing.

    Args:
        num_candidates: At least two.
        now: Seconds; when counting started.

    """

    reads_replay = False
    """Counts come from a cold replay of the window, not from the shadows."""

    def __init__(self, num_candidates: int, now: float):
        self.num_candidates = num_candidates
        self.next_decision = now
        """Seconds; `decide` is to be called at the first chance after it."""

    @abstractmethod
    def decide(self, now: float, live: int, counts: Counts) -> Decision:
        """Choose, and set `next_decision`.

        Args:
            now: Seconds.
            live: Index of the candidate that is live.
            counts: Since the last call.

        """

    def _rates(self, hits: list[float], queries: float) -> tuple[float, ...]:
        return tuple(hit / queries if queries > 0 else 0.0 for hit in hits)


class Discounted(Rule):
    """The default. Compares hit tokens that count half as much after a half-life.

    Switches when the lead of a candidate over the live one is more than its
    standard error and more than a small share of the tokens. The error is that of
    a sum of independent leads, one from each interval, discounted alike.

    Args:
        num_candidates: See `Rule`.
        now: See `Rule`.
        half_life: Seconds. Shorter follows the traffic sooner and believes noise.
        interval: Seconds between decisions.
        errors: Standard errors that the lead must exceed.
        min_lead: Share of the query tokens that the lead must exceed.

    """

    def __init__(
        self,
        num_candidates: int,
        now: float = 0.0,
        half_life: float = 60.0,
        interval: float = 10.0,
        errors: float = 1.0,
        min_lead: float = 0.005,
    ):
        super().__init__(num_candidates, now)
        self.half_life = half_life
        self.interval = interval
        self.errors = errors
        self.min_lead = min_lead
        self.next_decision = now + interval
        self._last = now
        self._queries = 0.0
        self._hits = [0.0] * num_candidates
        # For each pair (i, j): the lead of i over j, and its variance.
        self._lead = [[0.0] * num_candidates for _ in range(num_candidates)]
        self._variance = [[0.0] * num_candidates for _ in range(num_candidates)]

    def decide(self, now: float, live: int, counts: Counts) -> Decision:
        keep = 0.5 ** (max(now - self._last, 0.0) / self.half_life)
        self._last = now
        self.next_decision = now + self.interval
        hits = counts.hit_tokens
        self._queries = self._queries * keep + counts.query_tokens
        for i, hit in enumerate(hits):
            self._hits[i] = self._hits[i] * keep + hit
            for j, other in enumerate(hits):
                lead = hit - other
                self._lead[i][j] = self._lead[i][j] * keep + lead
                self._variance[i][j] = self._variance[i][j] * keep**2 + lead**2

        choice = live
        best = self.min_lead * self._queries
        for i in range(self.num_candidates):
            lead = self._lead[i][live]
            error = self.errors * math.sqrt(self._variance[i][live])
            if lead > best and lead > error and counts.query_tokens > 0:
                choice, best = i, lead
        return Decision(
            choice,
            self._rates(self._hits, self._queries),
            self._queries,
            now - 2 * self.half_life,
            now,
        )


class Window(Rule):
    """At each boundary the candidate with most hit tokens in the window.

    Args:
        num_candidates: See `Rule`.
        now: See `Rule`.
        window: Seconds between boundaries.
        first_window: Seconds until the first one; then each is twice as long, up
            to `window`, so that nobody waits long on the wrong policy.

    """

    def __init__(
        self,
        num_candidates: int,
        now: float = 0.0,
        window: float = 900.0,
        first_window: float = 60.0,
    ):
        super().__init__(num_candidates, now)
        self.window = window
        self._length = min(first_window, window)
        self._start = now
        self.next_decision = now + self._length

    def decide(self, now: float, live: int, counts: Counts) -> Decision:
        start = self._start
        self._length = min(2 * self._length, self.window)
        self._start = now
        self.next_decision = now + self._length
        choice = live
        if counts.query_tokens > 0:
            for i, hits in enumerate(counts.hit_tokens):
                if hits > counts.hit_tokens[choice]:
                    choice = i
        rates = self._rates(
            [float(hit) for hit in counts.hit_tokens], counts.query_tokens
        )
        return Decision(choice, rates, counts.query_tokens, start, now)


class Paper(Window):
    """WAKMan as published: whole windows only, and a cold replay of each.

    The counts are of blocks, each hit by itself, of a replay of the window's block
    hashes in order of arrival on empty caches as large as the free queue was on
    average. The first candidate is live until the first boundary.
    """

    reads_replay = True

    def __init__(self, num_candidates: int, now: float = 0.0, window: float = 900.0):
        super().__init__(num_candidates, now, window, first_window=window)


def weighed(
    objective: str,
    tokens: tuple[int, list[int]],
    compute: tuple[float, list[float]],
    block_size: int,
) -> tuple[int, list[int]]:
    """Totals that a rule compares, those asked for and those of each candidate's hits.

    Args:
        objective: `tokens` or `compute`.
        tokens: Of prompts, and of hits.
        compute: What they cost, in blocks at depth zero; of the full blocks only.
        block_size: Tokens.

    """
    if objective == "tokens":
        return tokens
    queries, saved = compute
    return round(queries * block_size), [round(each * block_size) for each in saved]


@dataclass
class CountsSince:
    """Turns running totals into `Counts` since the last decision."""

    query_tokens: int = 0
    hit_tokens: list[int] = field(default_factory=list)

    def take(self, query_tokens: int, hit_tokens: list[int]) -> Counts:
        """Return what was added since the last call.

        Totals that went back mean that counting started anew.
        """
        if not self.hit_tokens or query_tokens < self.query_tokens:
            self.query_tokens, self.hit_tokens = 0, [0] * len(hit_tokens)
        counts = Counts(
            query_tokens - self.query_tokens,
            tuple(
                now - before
                for now, before in zip(hit_tokens, self.hit_tokens, strict=True)
            ),
        )
        self.query_tokens, self.hit_tokens = query_tokens, list(hit_tokens)
        return counts
