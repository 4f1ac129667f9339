# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The C++ policies choose as the naive models do, event for event.

Pools are tiny, so that all corners are met: a small queue of one, a hand at the
end of its list, ghost lists that are full.
"""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from vllm._eviction_C import make_policy, native_policies

from tests.eviction.event_pool import EventPool, event_lists
from tests.eviction.naive_models import MODELS, WITHOUT_MODEL
from vllm.v1.core.eviction.registry import get_policy


def agree(pool: EventPool, events: list[tuple[str, int]]) -> None:
    native, naive = pool.policies
    try:
        for event, number in events:
            pool.step(event, number)
            native.check()
            assert native.num_ghosts == len(naive.ghosts())
            assert native.ghost_hits == naive.ghost_hits
        while pool.victim() is not None:  # the whole order, not just its head
            native.check()
    finally:
        note(f"{pool.num_slots} slots: {pool.log}")


def test_every_native_policy_has_a_naive_model():
    assert sorted({*MODELS, *WITHOUT_MODEL}) == native_policies()


@pytest.mark.parametrize("hit_in_place", [False, True], ids=["pinned", "unpinned"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_same_victims(name: str, hit_in_place: bool):
    @settings(max_examples=500)
    @given(num_slots=st.integers(1, 12), events=event_lists())
    def run(num_slots: int, events: list[tuple[str, int]]):
        subjects: list[Any] = [make_policy(name, num_slots), MODELS[name](num_slots)]
        pool = EventPool(num_slots, *subjects, hit_in_place=hit_in_place)
        agree(pool, events)

    run()


@pytest.mark.needs_upstream
@pytest.mark.parametrize("name", sorted(MODELS))
def test_same_victims_in_the_live_queue(name: str):
    """The queue tells the policy just what happens, and changes none of its choices.

    It disowns ghosts by itself, so the tests' own event for that is left out.
    """
    from tests.eviction.live_policy import LivePolicy

    @settings(max_examples=200)
    @given(num_slots=st.integers(1, 12), events=event_lists())
    def run(num_slots: int, events: list[tuple[str, int]]):
        # The pool's null block is a slot too, which counts in the capacity.
        subjects: list[Any] = [LivePolicy(name, num_slots), MODELS[name](num_slots + 1)]
        agree(  # the pool of `LivePolicy` has blocks of one depth
            EventPool(num_slots, *subjects, depths=1),
            [event for event in events if event[0] != "disown"],
        )

    run()


shares = st.sampled_from([0.01, 0.1, 0.34, 0.5, 0.8, 0.99])
ghost_ratios = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0, 6.0])
PARAMETERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "slru": {"protected_ratio": shares},
    "2q": {"in_ratio": shares, "ghost_ratio": ghost_ratios},
    "lecar": {
        "learning_rate": st.sampled_from([0.01, 0.45, 10.0]),
        "discount": st.sampled_from([0.005, 0.5, 1.0]),
        "ghost_ratio": ghost_ratios,
        "seed": st.integers(0, 2**32 - 1),
    },
    "lirs": {"hir_ratio": shares, "ghost_ratio": ghost_ratios},
    "lfu": {"ageing": st.booleans()},
    "random-compute": {
        "samples": st.sampled_from([1, 2, 32]),
        "seed": st.integers(0, 2**32 - 1),
    },
    "partial-compute": {
        "samples": st.sampled_from([1, 2, 32]),
        "chunk": st.sampled_from([1, 2, 5]),
        "small_ratio": st.sampled_from([0.0, 0.1, 0.5, 0.9]),
        "seed": st.integers(0, 2**32 - 1),
    },
    "lhd": {"samples": st.sampled_from([1, 2, 32]), "seed": st.integers(0, 2**32 - 1)},
    "workload-aware": {
        "horizon": st.sampled_from([0.01, 0.5, 1.0, 100.0]),
        "ghost_ratio": ghost_ratios,
    },
    "asymcache": {"half_life": st.sampled_from([0.01, 0.5, 1.0, 100.0])},
    "t-lru": {
        "xi": st.sampled_from([0, 16, 40, 64, 2048]),
        "next_prompt": st.sampled_from([0, 16, 256]),
    },
    "wtinylfu": {
        "window_ratio": shares,
        "protected_ratio": shares,
        "climb": st.booleans(),
        "seed": st.integers(0, 2**32 - 1),
    },
    "s3fifo": {
        "small_ratio": shares,
        "ghost_ratio": ghost_ratios,
        "promotion": st.integers(1, 3),
    },
    "s4fifo": {
        "rho_s": shares,
        "rho_g": ghost_ratios,
        "kappa": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "tau_s": st.integers(1, 3),
        "tau_g": st.integers(0, 1),
    },
}


def test_every_parameter_is_varied_below():
    takes = {name: fields(get_policy(name).config) for name in MODELS}
    # A file of costs is read outside of the policy.
    names = {
        name: {field.name for field in takes[name]} - {"cost_file"} for name in MODELS
    }
    assert {name: keys for name, keys in names.items() if keys} == {
        name: set(drawn) for name, drawn in PARAMETERS.items()
    }


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_same_victims_with_any_parameters(name: str):
    @settings(max_examples=500)
    @given(
        num_slots=st.integers(1, 12),
        parameters=st.fixed_dictionaries(PARAMETERS[name]),
        events=event_lists(),
    )
    def run(num_slots: int, parameters: dict[str, Any], events: list[tuple[str, int]]):
        naive: Any = MODELS[name]
        subjects = [
            make_policy(name, num_slots, parameters),
            naive(num_slots, **parameters),
        ]
        agree(EventPool(num_slots, *subjects), events)

    run()
