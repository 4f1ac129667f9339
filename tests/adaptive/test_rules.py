# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The decision rules: counts in, choice out. Numbers are worked by hand."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vllm.v1.core.eviction.rules import (
    Counts,
    CountsSince,
    Discounted,
    Paper,
    Rule,
    Window,
    weighed,
)


def discounted(num_candidates: int = 2, **changes: float) -> Discounted:
    """Half as much after each interval of ten seconds; one standard error."""
    plain = {"half_life": 10.0, "errors": 1.0, "min_lead": 0.0}
    return Discounted(num_candidates, **plain | changes)


def feed(rule: Rule, *intervals: tuple[int, ...], live: int = 0) -> list[int]:
    """Decide at each time that the rule names; the choice is live from then on.

    Args:
        rule: Under test.
        intervals: Query tokens, then the hit tokens of each candidate.
        live: At the start.

    """
    choices = []
    for queries, *hits in intervals:
        now = rule.next_decision
        live = rule.decide(now, live, Counts(queries, tuple(hits))).choice
        choices.append(live)
    return choices


class TestDiscounted:
    def test_two_intervals_by_hand(self):
        rule = discounted()
        first = rule.decide(10.0, 0, Counts(100, (40, 50)))
        # A lead of 10 with a standard error of 10: one interval says nothing.
        assert first.choice == 0
        assert first.hit_rates == (0.4, 0.5)
        second = rule.decide(20.0, 0, Counts(100, (30, 50)))
        # 10 / 2 + 20 = 25 against sqrt(100 / 4 + 400) = 20.6.
        assert second.choice == 1
        # Hits of 40 / 2 + 30 and 50 / 2 + 50 of 100 / 2 + 100 tokens.
        assert second.hit_rates == (50 / 150, 75 / 150)
        assert second.query_tokens == 150
        assert (second.start, second.end) == (0.0, 20.0)
        assert rule.next_decision == 30.0

    def test_a_lead_within_one_standard_error_stays(self):
        # 20 / 2 + 0 = 10, against sqrt(400 / 4) = 10.
        assert feed(discounted(), (100, 40, 60), (100, 40, 40)) == [0, 0]
        # 10 / 2 + 1 = 6, against sqrt(100 / 4 + 1) = 5.1.
        intervals = [(100, 40, 60), (100, 40, 40), (100, 40, 41)]
        assert feed(discounted(), *intervals) == [0, 0, 1]

    def test_more_errors_switch_later(self):
        same = [(100, 40, 50)] * 8
        # Equal leads: the sum reaches 1, 1.34, 1.53, 1.63, ... standard errors.
        assert feed(discounted(errors=1.0), *same).index(1) == 1
        assert feed(discounted(errors=1.5), *same).index(1) == 2
        assert feed(discounted(errors=1.6), *same).index(1) == 3
        # The limit is sqrt(3), when everything counts.
        assert 1 not in feed(discounted(errors=1.74), *same)

    def test_a_lead_within_the_smallest_share_stays(self):
        # After two intervals 6 tokens of 1500 lead, 0.4 %.
        same = [(1000, 500, 504)] * 2
        assert feed(discounted(min_lead=0.004), *same) == [0, 0]
        assert feed(discounted(min_lead=0.0039), *same) == [0, 1]

    def test_the_largest_lead_wins_and_the_live_one_keeps_a_tie(self):
        assert feed(discounted(3), *[(100, 10, 30, 20)] * 2) == [0, 1]
        assert feed(discounted(3), *[(100, 10, 30, 30)] * 2) == [0, 1]
        assert feed(discounted(3), *[(100, 30, 30, 10)] * 3, live=1) == [1, 1, 1]

    def test_it_follows_traffic_that_turns(self):
        intervals = [(100, 40, 50)] * 5 + [(100, 50, 40)] * 3
        # 19.4 tokens ahead; then 0, -10, -15.
        assert feed(discounted(), *intervals) == [0, 1, 1, 1, 1, 1, 1, 0]

    def test_no_traffic_no_switch(self):
        rule = discounted()
        rule.decide(10.0, 0, Counts(100, (40, 50)))
        rule.decide(20.0, 0, Counts(100, (30, 50)))
        # It says 1, but with an interval of nothing it would say it again.
        decision = rule.decide(30.0, 0, Counts(0, (0, 0)))
        assert decision.choice == 0
        assert decision.hit_rates == pytest.approx((50 / 150, 75 / 150))

    def test_before_any_traffic(self):
        decision = discounted().decide(10.0, 1, Counts(0, (0, 0)))
        assert decision.choice == 1
        assert decision.hit_rates == (0.0, 0.0)
        assert decision.query_tokens == 0

    def test_one_request_decides_nothing(self):
        """However large the lead: its error is as large."""
        intervals = [(16384, 0, 16383)] + [(0, 0, 0)] * 5
        assert feed(discounted(), *intervals) == [0] * 6

    def test_irregular_intervals_are_discounted_by_their_length(self):
        rule = discounted()
        rule.decide(10.0, 0, Counts(100, (0, 80)))
        decision = rule.decide(40.0, 0, Counts(100, (0, 10)))
        assert decision.query_tokens == 100 / 8 + 100
        # 80 / 8 + 10 = 20, against sqrt(6400 / 64 + 100) = 14.1.
        assert decision.choice == 1
        assert rule.next_decision == 50.0

    def test_after_a_long_silence_the_past_is_gone(self):
        rule = discounted()
        rule.decide(10.0, 0, Counts(100, (0, 80)))
        decision = rule.decide(1e9, 0, Counts(100, (10, 10)))
        assert decision.hit_rates == (0.1, 0.1)
        assert decision.query_tokens == 100

    def test_a_clock_that_goes_back_discounts_nothing(self):
        rule = discounted()
        rule.decide(1000.0, 0, Counts(100, (40, 50)))
        decision = rule.decide(20.0, 0, Counts(100, (40, 50)))
        assert decision.query_tokens == 200
        assert rule.next_decision == 30.0
        # And from there time runs as before.
        assert rule.decide(30.0, 0, Counts(0, (0, 0))).query_tokens == 100

    @given(data=st.data(), num_candidates=st.integers(2, 4))
    def test_agrees_with_its_description(
        self, data: st.DataObject, num_candidates: int
    ):
        """Against all intervals kept and summed anew each time."""
        half_life = data.draw(st.sampled_from([7.0, 60.0]))
        errors = data.draw(st.sampled_from([0.0, 1.0, 2.0]))
        min_lead = data.draw(st.sampled_from([0.0, 0.005, 0.1]))
        rule = Discounted(
            num_candidates, 0.0, half_life, errors=errors, min_lead=min_lead
        )
        past: list[tuple[float, int, list[int]]] = []
        now, live = 0.0, 0
        tokens = st.integers(0, 1000)
        for _ in range(data.draw(st.integers(1, 12))):
            now += data.draw(st.floats(0.0, 100.0))
            hits = [data.draw(tokens) for _ in range(num_candidates)]
            queries = data.draw(st.sampled_from([0, sum(hits)]))
            hits = hits if queries else [0] * num_candidates
            past.append((now, queries, hits))
            weights = [0.5 ** ((now - then) / half_life) for then, _, _ in past]
            total = math.fsum(w * q for w, (_, q, _) in zip(weights, past, strict=True))
            expected, best = live, min_lead * total
            for i in range(num_candidates):
                leads = [hits[i] - hits[live] for _, _, hits in past]
                lead = math.fsum(map(math.prod, zip(weights, leads, strict=True)))
                error = errors * math.hypot(
                    *map(math.prod, zip(weights, leads, strict=True))
                )
                for bound in (best, error):  # no verdict on what rounding decides
                    assume(lead == bound or abs(lead - bound) > 1e-9 * (1 + abs(lead)))
                if queries and lead > max(best, error) + 1e-9:
                    expected, best = i, lead
            decision = rule.decide(now, live, Counts(queries, tuple(hits)))
            assert decision.choice == expected
            assert decision.query_tokens == pytest.approx(total)
            for i, rate in enumerate(decision.hit_rates):
                hit = math.fsum(
                    w * hits[i] for w, (_, _, hits) in zip(weights, past, strict=True)
                )
                assert rate == pytest.approx(hit / total if total else 0.0)
            live = decision.choice


class TestWindow:
    def test_the_most_hits_win_by_hand(self):
        rule = Window(3, 0.0, window=60.0)
        decision = rule.decide(60.0, 0, Counts(1000, (100, 101, 90)))
        assert decision.choice == 1
        assert decision.hit_rates == (0.1, 0.101, 0.09)
        assert (decision.start, decision.end) == (0.0, 60.0)
        assert decision.query_tokens == 1000

    def test_each_window_stands_for_itself(self):
        windows = [(100, 0, 50), (100, 2, 1), (100, 1, 2)]
        assert feed(Window(2, 0.0, window=60.0), *windows) == [1, 0, 1]

    def test_first_windows_double(self):
        rule = Window(2, 100.0, window=900.0, first_window=60.0)
        boundaries = []
        for _ in range(7):
            boundaries.append(rule.next_decision - 100.0)
            rule.decide(rule.next_decision, 0, Counts(1, (0, 0)))
        assert boundaries == [60, 180, 420, 900, 1800, 2700, 3600]

    def test_a_window_shorter_than_the_first(self):
        rule = Window(2, 0.0, window=20.0, first_window=60.0)
        assert rule.next_decision == 20.0
        rule.decide(20.0, 0, Counts(1, (0, 0)))
        assert rule.next_decision == 40.0

    def test_a_late_decision_moves_the_boundaries_behind_it(self):
        """An idle engine takes no step; the window ends when it is looked at."""
        rule = Window(2, 0.0, window=60.0)
        decision = rule.decide(75.0, 0, Counts(10, (1, 2)))
        assert (decision.start, decision.end) == (0.0, 75.0)
        assert rule.next_decision == 135.0

    def test_an_empty_window_stays(self):
        decision = Window(2, 0.0).decide(60.0, 1, Counts(0, (0, 0)))
        assert decision.choice == 1
        assert decision.hit_rates == (0.0, 0.0)

    def test_one_request_is_a_window(self):
        assert feed(Window(2, 0.0), (17, 0, 16)) == [1]

    def test_ties_stay(self):
        tie = (100, 40, 40)
        assert feed(Window(2, 0.0), tie, tie, live=1) == [1, 1]
        # Among others that are equal the first.
        assert feed(Window(3, 0.0), (100, 40, 50, 50)) == [1]

    def test_a_clock_that_goes_back_starts_a_window_there(self):
        rule = Window(2, 1000.0, window=60.0)
        rule.decide(500.0, 0, Counts(10, (1, 1)))
        assert rule.next_decision == 560.0


class TestPaper:
    def test_whole_windows_from_the_start(self):
        rule = Paper(2, 0.0, window=900.0)
        assert rule.reads_replay
        boundaries = []
        for _ in range(3):
            boundaries.append(rule.next_decision)
            rule.decide(rule.next_decision, 0, Counts(1, (0, 0)))
        assert boundaries == [900, 1800, 2700]

    def test_decides_as_a_window_does(self):
        windows = [(100, 0, 50), (0, 0, 0), (100, 3, 3), (100, 4, 3)]
        assert feed(Paper(2, 0.0), *windows) == [1, 1, 1, 0]


class TestCountsSince:
    def test_what_was_added(self):
        since = CountsSince()
        assert since.take(100, [40, 50]) == Counts(100, (40, 50))
        assert since.take(160, [70, 50]) == Counts(60, (30, 0))
        assert since.take(160, [70, 50]) == Counts(0, (0, 0))

    def test_totals_that_went_back_started_anew(self):
        since = CountsSince()
        since.take(100, [40, 50])
        assert since.take(30, [10, 20]) == Counts(30, (10, 20))
        assert since.take(31, [10, 21]) == Counts(1, (0, 1))


class TestObjective:
    TOKENS = (160, [64, 48])
    COMPUTE = (25.4, [8.0, 16.6])

    def test_tokens_are_told_as_they_are(self):
        assert weighed("tokens", self.TOKENS, self.COMPUTE, 16) == self.TOKENS

    def test_compute_is_told_in_tokens_as_dear_as_the_first(self):
        told = weighed("compute", self.TOKENS, self.COMPUTE, 16)
        assert told == (406, [128, 266])

    def test_they_may_choose_differently(self):
        """The first finds more, and what the second finds is dear."""
        choices = []
        for objective in ("tokens", "compute"):
            queries, hits = weighed(objective, self.TOKENS, self.COMPUTE, 16)
            rule = Window(2, 0.0)
            choices.append(rule.decide(60.0, 0, Counts(queries, tuple(hits))).choice)
        assert choices == [0, 1]
