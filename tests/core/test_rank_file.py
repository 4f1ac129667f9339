# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Engine cores of one server never write the same file."""

import pytest
from vllm.config import ParallelConfig

from vllm.v1.core.eviction.rank_file import config_of_rank, path_of_rank


@pytest.mark.parametrize("dense", [False, True])
def test_no_two_ranks_have_the_same_file(dense: bool) -> None:
    """The ranks of a dense model believe that they are alone."""
    paths = []
    for rank in range(3):
        config = ParallelConfig(data_parallel_size=3, data_parallel_rank=rank)
        if dense:
            config.reconfigure_for_independent_dp_rank()
            assert config.data_parallel_size == 1
        paths.append(path_of_rank("run.1/state.json", config))
    assert paths == ["run.1/state.json", "run.1/state.dp1.json", "run.1/state.dp2.json"]


def test_a_single_engine_has_the_file_as_given() -> None:
    assert path_of_rank("a/state", ParallelConfig()) == "a/state"


def test_only_the_file_of_a_policys_parameters_is_the_ranks_own() -> None:
    config = ParallelConfig(data_parallel_size=3, data_parallel_rank=2)
    given = {"state_file": "state.json", "half_life": 3}
    assert config_of_rank(given, config) == {
        "state_file": "state.dp2.json",
        "half_life": 3,
    }
    assert given["state_file"] == "state.json"
    assert config_of_rank(None, config) == {}
