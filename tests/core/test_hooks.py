# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a policy is told of requests, by the fork's real scheduler.

One access for a request and block: that of its first admission.
"""

from pathlib import Path

import pytest
from listening_policy import Listener
from real_pool import check_pool, make_request
from real_scheduler import (
    BLOCK_SIZE,
    full_group,
    make_scheduler,
    run_to_end,
    scratch_group,
    step,
    window_group,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus


def make_listened(model: Path, **options) -> tuple[Scheduler, Listener]:
    scheduler = make_scheduler(model, "test-listener", **options)
    return scheduler, Listener.built


def prompt(num_blocks: int, seed: int = 0, tail: int = 1) -> list[int]:
    """Tokens of so many full blocks, and a few more."""
    return [1000 * seed + i for i in range(num_blocks * BLOCK_SIZE + tail)]


def add(
    scheduler: Scheduler, name: str, tokens: list[int], outputs: int = 1
) -> Request:
    request = make_request(name, tokens, max_tokens=outputs)
    scheduler.add_request(request)
    return request


def block_ids(scheduler: Scheduler, request: Request) -> list[int]:
    return list(scheduler.kv_cache_manager.get_block_ids(request.request_id)[0])


def test_a_cold_request_is_admitted_with_all_its_blocks(model: Path) -> None:
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(6))
    run_to_end(scheduler)
    (admission,) = policy.admissions
    assert len(set(admission.keys)) == 6
    assert admission.slots == (None,) * 6


def test_the_keys_of_an_admission_are_those_of_the_blocks(model: Path) -> None:
    scheduler, policy = make_listened(model)
    request = add(scheduler, "a", prompt(4), outputs=2)
    step(scheduler)
    blocks = block_ids(scheduler, request)
    run_to_end(scheduler)
    assert [policy.key_of[block] for block in blocks[:4]] == list(
        policy.admissions[0].keys
    )


def test_chunks_of_a_prompt_are_one_access(model: Path) -> None:
    scheduler, policy = make_listened(model, max_tokens_in_step=16)
    add(scheduler, "a", prompt(24))
    assert len(run_to_end(scheduler)) > 5
    assert len(policy.admissions) == 1


def test_steps_of_decoding_are_no_access(model: Path) -> None:
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(2), outputs=40)
    assert len(run_to_end(scheduler)) >= 40
    (admission,) = policy.admissions
    assert len(admission.keys) == 2


def test_a_hit_names_the_block_that_was_hit(model: Path) -> None:
    scheduler, policy = make_listened(model)
    first = add(scheduler, "a", prompt(5))
    step_ids = None
    step(scheduler)
    step_ids = policy.admissions[0]
    add(scheduler, "b", prompt(5))
    step(scheduler)
    hit = policy.admissions[1]
    assert hit.keys == step_ids.keys
    assert None not in hit.slots
    assert [policy.key_of[slot] for slot in hit.slots] == list(hit.keys)
    assert first.is_finished()


def test_a_hit_on_a_block_in_use_counts(model: Path) -> None:
    """It never passes through the free queue."""
    scheduler, policy = make_listened(model)
    running = add(scheduler, "a", prompt(5), outputs=30)
    step(scheduler)
    add(scheduler, "b", prompt(5), outputs=30)
    step(scheduler)
    assert list(policy.admissions[1].slots) == block_ids(scheduler, running)[:5]


def test_the_block_of_the_last_token_is_no_hit(model: Path) -> None:
    """It is computed again; upstream needs its logits."""
    scheduler, policy = make_listened(model)
    for name in ("a", "b"):
        add(scheduler, name, prompt(5, tail=0))
        run_to_end(scheduler)
    assert [slot is None for slot in policy.admissions[1].slots] == [False] * 4 + [True]
    check_pool(scheduler.kv_cache_manager.block_pool)


def test_lookups_of_a_request_that_does_not_fit_are_no_access(model: Path) -> None:
    scheduler, policy = make_listened(model, num_blocks=22)
    add(scheduler, "a", prompt(15), outputs=12)
    step(scheduler)
    add(scheduler, "b", prompt(15, seed=1))
    for _ in range(4):
        step(scheduler)
    assert [a.serial for a in policy.admissions] == [1]
    run_to_end(scheduler)
    assert [a.serial for a in policy.admissions] == [1, 2]


def preempt_someone(scheduler: Scheduler, outputs: int = 60) -> list[Request]:
    """Two requests that grow until one has to go, and come back."""
    requests = [
        add(scheduler, name, prompt(6, seed=i), outputs) for i, name in enumerate("ab")
    ]
    run_to_end(scheduler)
    assert any(request.num_preemptions for request in requests)
    return requests


def test_a_preempted_request_that_resumes_is_no_access(model: Path) -> None:
    scheduler, policy = make_listened(model, num_blocks=30)
    preempt_someone(scheduler)
    assert [len(a.keys) for a in policy.admissions] == [6, 6]


def test_a_request_that_skips_the_cache_is_no_access(model: Path) -> None:
    """Prompt logprobs are computed anew: nothing was looked up, nothing missed."""
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(5))
    run_to_end(scheduler)
    params = SamplingParams(max_tokens=1, prompt_logprobs=1)
    request = make_request("b", prompt(5), params=params)
    assert request.skip_reading_prefix_cache
    scheduler.add_request(request)
    step(scheduler)
    assert [a.serial for a in policy.admissions] == [1]
    check_pool(scheduler.kv_cache_manager.block_pool)


def test_outputs_in_flight_are_one_access(model: Path) -> None:
    """The asynchronous scheduler plans a step before the last one is answered."""
    from collections import deque

    from real_scheduler import draw_tokens

    scheduler, policy = make_listened(model, asynchronous=True, max_tokens_in_step=16)
    add(scheduler, "a", prompt(10), outputs=9)
    add(scheduler, "b", prompt(10), outputs=5)
    flying: deque = deque()
    while scheduler.has_unfinished_requests():
        output = scheduler.schedule()
        flying.append((output, draw_tokens(scheduler, output, 7)))
        if len(flying) == 2:
            scheduler.update_from_output(*flying.popleft())
    assert [len(a.keys) for a in policy.admissions] == [10, 10]
    assert not scheduler.eviction._admitted


def test_a_request_is_finished_once_with_what_it_leaves(model: Path) -> None:
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(3), outputs=2 * BLOCK_SIZE)
    run_to_end(scheduler)
    ((serial, keys),) = policy.finished
    # The last token drawn was never computed: 3 blocks of prompt and 2 of output.
    assert (serial, len(keys)) == (1, 5)
    assert keys[:3] == policy.admissions[0].keys


@pytest.mark.parametrize("steps", [1, 3])
def test_an_aborted_request_is_finished(model: Path, steps: int) -> None:
    scheduler, policy = make_listened(model, max_tokens_in_step=16)
    add(scheduler, "a", prompt(10), outputs=20)
    for _ in range(steps):
        step(scheduler)
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    assert [serial for serial, _ in policy.finished] == [1]
    assert not scheduler.eviction._admitted
    check_pool(scheduler.kv_cache_manager.block_pool)


def test_a_request_aborted_before_its_admission_leaves_nothing(model: Path) -> None:
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(3))
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    step(scheduler)
    assert (policy.admissions, policy.finished) == ([], [])
    assert not scheduler.eviction._admitted


def test_nothing_is_left_of_a_request_that_is_gone(model: Path) -> None:
    scheduler, policy = make_listened(model, num_blocks=30)
    preempt_someone(scheduler)
    for i in range(30):
        add(scheduler, f"r{i}", prompt(3, seed=i % 4), outputs=1 + i % 7)
        if i % 5 == 0:
            scheduler.finish_requests(f"r{i}", RequestStatus.FINISHED_ABORTED)
        step(scheduler)
    run_to_end(scheduler)
    assert not scheduler.eviction._admitted
    assert {s for s, _ in policy.finished} == {a.serial for a in policy.admissions}


def test_a_name_that_comes_again_is_a_new_request(model: Path) -> None:
    scheduler, policy = make_listened(model)
    for _ in range(2):
        add(scheduler, "same", prompt(3))
        run_to_end(scheduler)
    assert [a.serial for a in policy.admissions] == [1, 2]


def test_the_clock_of_a_policy_is_that_of_the_steps(model: Path) -> None:
    scheduler, policy = make_listened(model)
    add(scheduler, "a", prompt(3), outputs=5)
    run_to_end(scheduler)
    assert len(policy.ticks) == 5 and policy.ticks == sorted(policy.ticks)
    assert policy.admissions[0].now == policy.ticks[0]


def test_each_group_of_a_hybrid_model_is_asked(model: Path) -> None:
    scheduler, policy = make_listened(model, num_groups=2, num_blocks=60)
    for name in ("a", "b"):
        add(scheduler, name, prompt(10))
        run_to_end(scheduler)
    cold, warm = policy.admissions
    assert len(set(cold.keys)) == 20  # the keys of two groups
    # Of the window's group only the end of the hit was kept and asked for.
    assert set(warm.keys[:10]) == set(cold.keys[:10])
    assert 0 < len(warm.keys) - 10 < 10
    assert None not in warm.slots
    for slot, key in zip(warm.slots, warm.keys, strict=True):
        assert policy.key_of[slot] == key


def test_the_path_of_a_request_is_that_of_the_group_that_holds_all(
    model: Path,
) -> None:
    """Whichever comes first in the model: of a window only the end is kept."""
    groups = [window_group(), full_group()]
    scheduler, policy = make_listened(model, groups=groups, num_blocks=60)
    for name in ("a", "b"):
        add(scheduler, name, prompt(10))
        run_to_end(scheduler)
    cold, warm = policy.admissions
    assert warm.keys[:10] == cold.keys[:10]
    assert None not in warm.slots[:10] and len(warm.keys) < 20


def test_what_compute_was_saved_does_not_depend_on_the_order_of_groups(
    model: Path,
) -> None:
    saved = []
    for groups in ([full_group(), window_group()], [window_group(), full_group()]):
        scheduler, _ = make_listened(model, groups=groups, num_blocks=60)
        for name in ("a", "b"):
            add(scheduler, name, prompt(10))
            run_to_end(scheduler)
        saved.append(scheduler.eviction.queue.saved)
    assert saved[0] == saved[1] >= 10.0


@pytest.mark.parametrize("at", [0, 1])
def test_scratch_space_of_a_request_is_no_part_of_its_path(
    model: Path, at: int
) -> None:
    groups = [full_group()]
    groups.insert(at, scratch_group())
    scheduler, policy = make_listened(model, groups=groups)
    for name in ("a", "b"):
        add(scheduler, name, prompt(10))
        run_to_end(scheduler)
    assert [len(a.keys) for a in policy.admissions] == [10, 10]
    assert None not in policy.admissions[1].slots
    assert [len(keys) for _, keys in policy.finished] == [10, 10]
    assert scheduler.eviction.status()["failure"] is None


def test_a_prefix_is_as_long_as_its_shortest_group_in_tokens(model: Path) -> None:
    """Groups may have blocks of different sizes."""
    groups = [full_group(), window_group(2 * BLOCK_SIZE)]
    scheduler, policy = make_listened(model, groups=groups, num_blocks=60)
    add(scheduler, "a", prompt(10))
    run_to_end(scheduler)
    ((_, keys),) = policy.finished
    assert len(keys) == 10 + 5
