# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the model learns, and what keeping a segment is worth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm._eviction_C import gittins

from tests.eviction.gittins.naive_model import (
    EDGES,
    NUM_BUCKETS,
    NaiveHazard,
    naive_index,
)

ABSENT = [-1] * gittins.NUM_FEATURES

covariates = st.tuples(
    st.lists(
        st.integers(-1, 3), min_size=gittins.NUM_FEATURES, max_size=gittins.NUM_FEATURES
    ),
    # As they are kept: in 32 bits.
    st.one_of(st.none(), st.floats(-2.25, 9.0, width=32)),
    st.booleans(),
)
lessons = st.lists(
    st.tuples(
        covariates,
        st.integers(0, NUM_BUCKETS - 1),
        st.booleans(),
        st.floats(0.0, 3.0),
    ),
    max_size=30,
)
hazard_lists = st.lists(
    st.floats(0.001, 0.999), min_size=NUM_BUCKETS, max_size=NUM_BUCKETS
)


def test_an_unlearnt_hazard_is_a_tenth_at_every_age():
    model = gittins.HazardModel()
    assert model.hazards(gittins.Covariates(ABSENT)) == pytest.approx([0.1] * 28)


def test_untaught_the_older_segment_is_worth_less():
    """LRU, until it knows better. The first bucket is longer than the second."""
    index = [gittins.gittins_index([0.1] * 28, bucket) for bucket in range(1, 28)]
    assert index == sorted(index, reverse=True)


@given(lessons=lessons, asked=covariates)
def test_it_learns_as_the_naive_model_does(lessons, asked):
    model, naive = gittins.HazardModel(), NaiveHazard()
    for (values, log_gap, shared), bucket, returned, weight in lessons:
        x = gittins.Covariates(values, log_gap, shared)
        model.learn(x, bucket, returned, weight)
        naive.learn(values, log_gap, shared, bucket, returned, weight)
    expected = [naive.hazard(*asked, bucket) for bucket in range(NUM_BUCKETS)]
    x = gittins.Covariates(*asked)
    assert model.hazards(x) == pytest.approx(expected, rel=1e-9)
    assert [model.hazard(x, b) for b in range(NUM_BUCKETS)] == model.hazards(x)


@given(hazards=hazard_lists, start=st.integers(0, NUM_BUCKETS - 1))
def test_the_index_is_the_best_of_all_times_to_give_up(hazards, start):
    expected = naive_index(hazards, start)
    assert gittins.gittins_index(hazards, start) == pytest.approx(expected, rel=1e-9)


def test_a_segment_that_surely_returns_soon_is_worth_waiting_for():
    """The present hazard is nothing: only the maximum over times sees the return."""
    returns_in_a_minute = [0.001] * NUM_BUCKETS
    returns_in_a_minute[gittins.bucket_of(60.0)] = 0.9
    never = [0.002] * NUM_BUCKETS
    start = gittins.bucket_of(20.0)
    assert gittins.gittins_index(returns_in_a_minute, start) > 5 * (
        gittins.gittins_index(never, start)
    )


def test_it_learns_the_pace_of_a_session_at_any_scale():
    """Sessions return after as long as the last time, some in seconds and some in
    minutes; then so does one with a pace that was never seen."""
    model = gittins.HazardModel()
    for _ in range(300):
        for gap in (0.0, 1.5, 5.5):  # ln of seconds
            x = gittins.Covariates(ABSENT, gap)
            at = gittins.bucket_of(2.718281828**gap)
            for bucket in range(at):
                model.learn(x, bucket, False, 1.0)
            model.learn(x, at, True, 1.0)
    unseen = model.hazards(gittins.Covariates(ABSENT, 3.5))
    at = gittins.bucket_of(2.718281828**3.5)
    assert max(unseen[:at]) < 0.3 < unseen[at]


@given(age=st.floats(0.0, 1e7))
def test_buckets_are_found_by_their_edges(age):
    bucket = gittins.bucket_of(age)
    assert EDGES[bucket] <= age * (1 + 1e-12)
    assert bucket == NUM_BUCKETS - 1 or age < EDGES[bucket + 1] * (1 + 1e-12)


@pytest.mark.parametrize("values", [[0] * 3, [24] + ABSENT[1:], [-2] + ABSENT[1:]])
def test_wrong_features_are_refused(values):
    with pytest.raises(ValueError, match="feature"):
        gittins.Covariates(values)
