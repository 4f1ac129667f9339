# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What is computed of a prompt with holes, in which steps, and what is reported."""

from pathlib import Path

import pytest
from real_scheduler import BLOCK_SIZE
from vllm.distributed.kv_events import BlockRemoved, BlockStored

from tests.holes.holey_scheduler import HoleyScheduler, prompt

TOKENS = prompt(12)


@pytest.fixture
def engine(model: Path) -> HoleyScheduler:
    """Twelve blocks of a prompt are cached; a step of prefill costs nothing."""
    engine = HoleyScheduler(model)
    engine.filler.rule = free_steps(engine)
    engine.serve("first", TOKENS)
    return engine


def free_steps(engine: HoleyScheduler, step: float = 0.0):
    from vllm._eviction_C import HoleRule, RecomputeCost

    return HoleRule(RecomputeCost(), BLOCK_SIZE, budget=16, step=step)


def chunks_in_blocks(engine: HoleyScheduler, name: str) -> list[tuple[float, float]]:
    return [
        (start / BLOCK_SIZE, end / BLOCK_SIZE)
        for start, end in engine.worker.chunks[name]
    ]


def test_only_a_hole_and_the_last_token_are_computed(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [3, 4])
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(3, 5), (12, 12.25)]


def test_a_prompt_may_begin_with_a_hole(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [0, 1])
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(0, 2), (12, 12.25)]


def test_each_hole_is_a_step(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [1, 5, 6, 10])
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [
        (1, 2),
        (5, 7),
        (10, 11),
        (12, 12.25),
    ]


def test_a_long_hole_is_computed_in_chunks(model: Path) -> None:
    engine = HoleyScheduler(model, max_tokens_in_step=4 * BLOCK_SIZE)
    engine.filler.rule = free_steps(engine)
    engine.serve("first", TOKENS)
    engine.make_holes(TOKENS, range(1, 8))
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(1, 5), (5, 8), (12, 12.25)]


def test_what_follows_the_last_run_is_computed(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [3])
    longer = prompt(15)
    engine.serve("longer", longer)
    assert chunks_in_blocks(engine, "longer") == [(3, 4), (12, 15.25)]


def test_the_last_token_is_computed_where_a_run_ends_a_prompt(
    engine: HoleyScheduler,
) -> None:
    whole = prompt(12, tail=0)
    engine.make_holes(whole, [3])
    engine.serve("again", whole)
    assert chunks_in_blocks(engine, "again") == [(3, 4), (11, 12)]


def test_a_filled_hole_is_cached_again(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [0, 3, 4])
    engine.serve("again", TOKENS)
    assert None not in engine.cached(TOKENS)
    engine.serve("once more", TOKENS)
    assert engine.worker.computed["once more"] == 1


def test_a_run_that_saves_less_than_a_step_is_computed(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [1, 3, 4])  # one block, then seven
    engine.filler.rule = free_steps(engine, step=1.0)
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(1, 5), (12, 12.25)]


def test_a_plain_prefix_is_adopted_as_always(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, range(7, 12))
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(7, 12.25)]
    assert engine.counts["holes"] == 0


def test_a_running_request_holds_what_it_will_reach(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [1, 5])
    run = engine.cached(TOKENS)[6:]
    engine.add("again", TOKENS)
    engine.step()
    assert [block.ref_cnt for block in run if block is not None] == [1] * 6
    engine.run()
    assert [block.ref_cnt for block in run if block is not None] == [0] * 6


def test_an_aborted_request_lets_go_of_what_it_did_not_reach(
    engine: HoleyScheduler,
) -> None:
    engine.make_holes(TOKENS, [1, 5])
    engine.add("again", TOKENS)
    engine.step()
    engine.abort("again")
    engine.run()
    assert engine.pool.get_num_free_blocks() == engine.pool.num_gpu_blocks - 1
    assert not engine.filler._pinned and not engine.filler._joined


def test_two_requests_share_the_runs(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [2, 6])
    engine.add("a", TOKENS)
    engine.add("b", [*TOKENS, 5, 6])
    engine.run()
    assert engine.worker.computed["a"] <= 2 * BLOCK_SIZE + 1
    assert engine.pool.get_num_free_blocks() == engine.pool.num_gpu_blocks - 1


def test_a_preempted_request_finds_its_runs_again(model: Path) -> None:
    engine = HoleyScheduler(model, num_blocks=20, max_tokens_in_step=24)
    engine.filler.rule = free_steps(engine)
    engine.serve("first", TOKENS)
    engine.make_holes(TOKENS, [1, 5])
    engine.add("long", prompt(5, family=1), outputs=24)
    engine.add("again", TOKENS, outputs=16)
    engine.run()
    assert engine.preemptions > 0
    assert engine.pool.get_num_free_blocks() == 19


def test_hits_behind_holes_are_hits(engine: HoleyScheduler) -> None:
    before = engine.queried, engine.hit
    engine.make_holes(TOKENS, [3, 4])
    request = engine.add("again", TOKENS)
    engine.step()
    assert request.prefill_stats.num_local_cached_tokens == 10 * BLOCK_SIZE
    assert request.prefill_stats.num_computed_tokens == 2 * BLOCK_SIZE + 1
    engine.run()
    told = engine.queried - before[0], engine.hit - before[1]
    assert told == (len(TOKENS), 10 * BLOCK_SIZE)


def test_holes_are_counted_once_for_a_request(engine: HoleyScheduler) -> None:
    engine.make_holes(TOKENS, [1, 5, 6])
    engine.serve("again", TOKENS)
    once = {"holes": 2, "hole_tokens": 3 * BLOCK_SIZE, "request_holes": {2: 1}}
    assert engine.counts == once
    assert engine.counts == once


def test_counts_that_nobody_takes_do_not_grow_with_the_requests(model: Path) -> None:
    """As where statistics are off."""
    engine = HoleyScheduler(model, log_stats=False)
    engine.filler.rule = free_steps(engine)
    engine.serve("first", TOKENS)
    for number in range(20):
        engine.make_holes(TOKENS, [3])
        engine.serve(f"{number}", TOKENS)
    assert engine.counts["request_holes"] == {1: 20}


def test_a_request_whose_holes_cannot_be_planned_is_served_as_a_prefix(
    engine: HoleyScheduler,
) -> None:
    engine.make_holes(TOKENS, [3, 4])
    engine.filler.rule = None  # cannot be asked
    engine.serve("again", TOKENS)
    assert chunks_in_blocks(engine, "again") == [(3, 12.25)]


def test_a_waiting_request_is_not_looked_up_in_each_step(model: Path) -> None:
    engine = HoleyScheduler(model, num_blocks=20)
    engine.serve("first", TOKENS)
    engine.make_holes(TOKENS, [1])
    engine.add("long", prompt(10, family=1), outputs=8)
    engine.step()
    engine.add("again", TOKENS)
    lookups = []
    found = engine.pool.get_cached_block
    engine.pool.get_cached_block = lambda *asked: lookups.append(1) or found(*asked)
    engine.step()
    # Upstream's own: the first block, and the hole.
    assert "again" not in engine.worker.chunks and len(lookups) <= 2


def test_events_tell_of_each_block_by_itself(engine: HoleyScheduler) -> None:
    """A router that thinks in prefixes must look for the blocks before, too."""
    blocks = engine.cached(TOKENS)
    engine.make_holes(TOKENS, [3, 4])
    assert blocks[5] is not None and blocks[5].block_hash is not None
    engine.events.clear()
    engine.serve("again", TOKENS)
    *removed, stored = engine.events
    assert all(type(event) is BlockRemoved for event in removed)
    assert sum(len(event.block_hashes) for event in removed) == 2
    assert type(stored) is BlockStored
    assert stored.token_ids == TOKENS[3 * BLOCK_SIZE : 5 * BLOCK_SIZE]
    assert len(stored.block_hashes) == 2 and stored.parent_block_hash is not None
