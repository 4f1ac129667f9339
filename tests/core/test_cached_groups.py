# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which of a model's KV-cache groups a policy hears of."""

import pytest
from manager_traffic import make_manager
from real_pool import ask, check_pool, make_pool, make_pool_with, store

from vllm.v1.core.eviction.windows import cached_groups, group_windows


def test_groups_in_another_pool_are_left_out() -> None:
    """The numbers of their blocks are those of other blocks here."""
    manager = make_manager(20, 2)
    first, second = manager.coordinator.single_type_managers
    assert cached_groups(manager) == [first, second]
    first.block_pool = make_pool(1000)
    assert cached_groups(manager) == [second]
    with pytest.raises(ValueError, match="not cached with the others"):
        group_windows(manager)


def test_a_model_without_such_a_group_is_refused_in_one_line() -> None:
    manager = make_manager(20, 1)
    manager.coordinator.single_type_managers[0].block_pool = make_pool(1000)
    with pytest.raises(ValueError) as refusal:
        cached_groups(manager)
    assert "\n" not in str(refusal.value)


def test_a_block_of_another_pool_is_refused(chooser: str) -> None:
    """Policies look a block up in tables that have no place for it."""
    pool, queue = make_pool_with(chooser, 8)
    store(pool, 1)
    stranger = store(make_pool(1000), *range(1, 900))[-1]
    assert stranger.block_id > 8
    with pytest.raises(RuntimeError, match="another pool"):
        ask(queue, 1, stranger)
    store(pool, *range(2, 20))
    check_pool(pool)
