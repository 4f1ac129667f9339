# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""After a reset of the prefix cache nothing is found, and then all is as before.

That every block is free again, and that the policy knows so, is asserted by
`serving.check_idle` after each phase.
"""

from tests.engine.conftest import Served
from tests.engine.serving import Answer, Setup


def _cached(answers: list[Answer]) -> list[int]:
    return [answer.num_cached for answer in answers]


def test_a_reset_forgets_every_prefix(kind: str, policy: str, served: Served) -> None:
    after = served(kind, policy).answers["reset"][2:4]
    assert _cached(after) == [0, 0]


def test_prefixes_are_found_again_after_a_reset(
    kind: str, policy: str, served: Served, setups: dict[str, Setup]
) -> None:
    once_more = served(kind, policy).answers["reset"][4:6]
    assert _cached(once_more) == [setups[kind].scale.prefix] * 2


def test_sleep_forgets_every_prefix(kind: str, policy: str, served: Served) -> None:
    assert _cached(served(kind, policy).answers["slept"]) == [0, 0]


def test_requests_go_on_when_the_cache_is_reset_under_them(
    kind: str, policy: str, served: Served
) -> None:
    """What they compute after it must be in the cache; see also the tokens."""
    report = served(kind, policy)
    assert len(report.answers["reset while running"]) == 8
    assert not report.failure
