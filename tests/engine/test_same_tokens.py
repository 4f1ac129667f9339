# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Eviction never changes an output.

The same prompts, greedy and in float32, under every policy and with prefix caching
off, where every token is computed from scratch. The tests around the first show
that it could have failed: that blocks were evicted and hit, that policies chose
differently, that one wrong block shows, and that rounding does not.
"""

import pytest

from tests.engine.conftest import OFF, OTHER_CHUNKS, ROOMY, Served
from tests.engine.engine_process import EngineProcess
from tests.engine.entry_points import PYTHON_FIFO
from tests.engine.serving import Report, Setup, serve_from_spoiled_blocks
from vllm.v1.core.eviction.registry import DEFAULT_POLICY, MANAGER, policy_names


def assert_same_tokens(report: Report, reference: Report) -> None:
    """Compare token by token; say how sure the model was where they part."""
    assert report.answers.keys() == reference.answers.keys()
    for phase, answers in report.answers.items():
        expected = reference.answers[phase]
        for i, (got, want) in enumerate(zip(answers, expected, strict=True)):
            for n, pair in enumerate(zip(got.tokens, want.tokens, strict=True)):
                assert pair[0] == pair[1], (
                    f"{phase}: request {i} with {got.num_cached} cached tokens got "
                    f"{pair[0]} and not {pair[1]} as token {n}, which led by "
                    f"{want.margins[n]:.2g}"
                )


def test_every_policy_gives_the_tokens_of_a_computation_from_scratch(
    kind: str, policy: str, served: Served
) -> None:
    assert_same_tokens(served(kind, policy), served(kind, OFF))


def test_every_policy_had_hits_and_evicted_what_was_asked_for_again(
    kind: str, policy: str, served: Served
) -> None:
    hits = served(kind, policy).num_hit_tokens
    assert 0 < hits < served(kind, ROOMY).num_hit_tokens


def test_every_policy_met_requests_that_were_preempted(
    kind: str, policy: str, served: Served
) -> None:
    assert served(kind, policy).preemptions > 0


def test_policies_choose_differently(kind: str, served: Served) -> None:
    hits = {
        policy: [answer.num_cached for answer in served(kind, policy).answers["floods"]]
        for policy in [*policy_names(), PYTHON_FIFO]
    }
    # All of these prompts can be recomputed within t-lru's target.
    like_lru = (DEFAULT_POLICY, "t-lru")
    for policy, others in hits.items():
        assert policy in like_lru or others != hits[DEFAULT_POLICY], policy
    assert len({sum(each) for each in hits.values()}) >= 4


def test_adaptive_changed_its_policy_while_it_served(kind: str, served: Served) -> None:
    metrics = served(kind, MANAGER).metrics
    name = "vllm:prefix_cache_policy_switches/"
    assert sum(value for key, value in metrics.items() if key.startswith(name)) > 0


def test_one_wrong_cache_shows_in_the_tokens(
    kind: str, engines: EngineProcess, setups: dict[str, Setup]
) -> None:
    right, wrong = engines.run(serve_from_spoiled_blocks, setups[kind])
    assert wrong.num_cached > 0
    assert wrong.tokens != right.tokens


def test_rounding_does_not_show_in_the_tokens(kind: str, served: Served) -> None:
    """Other chunks are other shapes, and so another order of summation."""
    reference, other = served(kind, OFF), served(kind, OTHER_CHUNKS)
    assert_same_tokens(other, reference)
    drift = max(
        abs(a - b)
        for phase, answers in reference.answers.items()
        for x, y in zip(answers, other.answers[phase], strict=True)
        for a, b in zip(x.logprobs, y.logprobs, strict=True)
    )
    margin = min(
        margin
        for answers in reference.answers.values()
        for answer in answers
        for margin in answer.margins
    )
    assert margin > 10 * drift


@pytest.mark.parametrize("name", [OFF, OTHER_CHUNKS])
def test_the_reference_had_no_hits(kind: str, name: str, served: Served) -> None:
    assert served(kind, name).num_hit_tokens == 0
