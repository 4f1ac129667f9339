# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""No request ever reads a slot that was not computed for its own prefix.

Prompts that share prefixes, holes made by the policy and at random, chunks,
preemption, aborts, a step in flight: each slot remembers for which prefix it was
computed, and whoever reads it looks. The last tests show that it would be seen.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from real_scheduler import BLOCK_SIZE
from vllm._eviction_C import HoleRule, RecomputeCost

from tests.holes.holey_scheduler import HoleyScheduler
from tests.holes.slot_memory import WrongCache
from vllm.v1.core.eviction.hole_filling import HoleFiller, Run
from vllm.v1.core.eviction.registry import MANAGER, policy_names

FAMILIES = 6
REQUESTS = 400
NUM_BLOCKS = 48


def draw_prompt(rng: random.Random) -> list[int]:
    """A prefix of a family's text, and perhaps an end of its own."""
    family = rng.randrange(FAMILIES)
    length = rng.randint(1, 30 * BLOCK_SIZE)
    tokens = [100 + 300 * family + i for i in range(length)]
    if rng.random() < 0.5:
        tokens += [rng.randrange(50) for _ in range(rng.randint(1, 3 * BLOCK_SIZE))]
    return tokens


def serve_much(engine: HoleyScheduler, seed: int, requests: int = REQUESTS) -> int:
    """Serve traffic with holes; return how many runs were jumped over."""
    rng = random.Random(seed)
    pool = engine.pool
    names: list[str] = []
    for number in range(requests):
        names.append(f"{number}")
        engine.add(names[-1], draw_prompt(rng), outputs=rng.randint(1, 10))
        for _ in range(rng.choice([0, 0, 1, 3, 12])):
            engine.step()
            if rng.random() < 0.5:
                cached = [b.block_id for b in pool.blocks if b.block_hash is not None]
                share = rng.choice([0.1, 0.3, 0.6])
                pool.evict_blocks({b for b in cached if rng.random() < share})
        if rng.random() < 0.1:
            engine.abort(rng.choice(names))
    engine.run()
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not engine.filler._pinned and not engine.filler._joined
    return engine.counts["holes"]


@pytest.fixture(params=[False, True], ids=["in step", "asynchronous"])
def make(request: pytest.FixtureRequest, model: Path) -> Callable[..., HoleyScheduler]:
    def make(policy: str, step: float = 0.0, **options) -> HoleyScheduler:
        engine = HoleyScheduler(
            model,
            policy,
            asynchronous=request.param,
            **{"num_blocks": NUM_BLOCKS, "max_tokens_in_step": 40} | options,
        )
        engine.filler.rule = HoleRule(RecomputeCost(), BLOCK_SIZE, budget=10, step=step)
        return engine

    return make


@pytest.mark.parametrize("policy", ["lru", "s3fifo", "random-compute"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_slot_is_read_for_the_prefix_it_was_computed_for(
    make: Callable[..., HoleyScheduler], policy: str, seed: int
) -> None:
    engine = make(policy)
    assert serve_much(engine, seed) > REQUESTS / 4
    assert engine.preemptions > 0


@pytest.mark.parametrize("policy", [*policy_names(), MANAGER])
def test_every_policy_bears_hits_behind_holes(
    make: Callable[..., HoleyScheduler], policy: str
) -> None:
    engine = make(policy)
    assert serve_much(engine, 4, requests=60) > 0
    hooks = engine.scheduler.eviction
    assert hooks is None or hooks.live_policy == hooks.live_label
    engine.scheduler.shutdown()


def test_also_where_some_runs_are_not_worth_it(
    make: Callable[..., HoleyScheduler],
) -> None:
    engine = make("partial-compute", step=4.0)
    assert serve_much(engine, 2) > 0


def test_also_where_a_prompt_is_admitted_without_room_for_all_of_it(
    make: Callable[..., HoleyScheduler],
) -> None:
    engine = make("lru")
    engine.scheduler.scheduler_reserve_full_isl = False
    engine.filler._reserves_prompt = False
    assert serve_much(engine, 3) > 0
    assert engine.preemptions > 0


def test_a_hole_that_stays_open_is_seen(
    make: Callable[..., HoleyScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first block of each hole are given, and not computed."""
    plan = HoleFiller._plan

    def skips_the_rest(self: HoleFiller, request, num_computed, num_new) -> list[Run]:
        runs = plan(self, request, num_computed, num_new)
        prefix = num_computed // BLOCK_SIZE
        if not runs or runs[0].first < prefix + 2:
            return runs
        gap = runs[0].first - prefix - 1
        if self._pool.get_num_free_blocks() < 2 * len(request.block_hashes) + gap:
            return runs
        first = Run(prefix + 1, self._pool.get_new_blocks(gap) + runs[0].blocks)
        self._planned = (request.request_id, prefix, [first, *runs[1:]])
        return [first, *runs[1:]]

    monkeypatch.setattr(HoleFiller, "_plan", skips_the_rest)
    with pytest.raises(WrongCache):
        serve_much(make("lru", num_blocks=160), 0)


def test_a_run_that_is_not_held_is_seen(
    make: Callable[..., HoleyScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = HoleFiller.pin

    def pin_without_holding(self: HoleFiller, request, num_tokens) -> None:
        pin(self, request, num_tokens)
        for run in self._pinned.get(request.request_id, ()):
            self._pool.free_blocks(reversed(run.blocks))

    monkeypatch.setattr(HoleFiller, "pin", pin_without_holding)
    monkeypatch.setattr(HoleFiller, "check", lambda self: None)
    with pytest.raises(AssertionError):
        serve_much(make("lru"), 0)
