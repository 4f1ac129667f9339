# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""From the flag to the policy in the scheduler, and back as statistics."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from listening_policy import Listener
from real_pool import check_pool, make_request
from real_scheduler import BLOCK_SIZE, make_scheduler, run_to_end, step
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.metrics.stats import SchedulerStats

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue
from vllm.v1.core.eviction.registry import register_policy, unregister_policy
from vllm.v1.core.eviction.state_file import StateKeeper


class Journal(logging.Handler):
    """vLLM's loggers do not propagate; this reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))

    def of(self, level: str) -> list[str]:
        """The messages of one level."""
        return [text for name, text in self.lines if name == level]


@pytest.fixture
def journal() -> Iterator[Journal]:
    handler = Journal()
    loggers = [
        logging.getLogger(f"vllm.v1.core.eviction.{name}")
        for name in ("attach", "hooks", "state_file")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def serve(
    scheduler: Scheduler, *seeds: int, num_blocks: int = 8
) -> list[SchedulerStats]:
    """One request after the other; the same seed, the same prompt."""
    told = []
    for i, seed in enumerate(seeds):
        tokens = [100 * seed + t for t in range(num_blocks * BLOCK_SIZE + 1)]
        scheduler.add_request(make_request(f"{i}-{seed}", tokens))
        told += run_to_end(scheduler)
    return told


def total(told: list[SchedulerStats], name: str) -> int:
    """Sum of one of the eviction statistics."""
    values = [stats.eviction_stats[name] for stats in told]
    assert min(values) >= 0  # a counter does not take less
    return sum(values)


def queue_of(scheduler: Scheduler) -> object:
    return scheduler.kv_cache_manager.block_pool.free_block_queue


def test_under_lru_the_scheduler_is_upstreams(model: Path, journal: Journal) -> None:
    scheduler = make_scheduler(model)
    assert scheduler.eviction is None
    assert type(queue_of(scheduler)) is FreeKVCacheBlockQueue
    assert all(stats.eviction_stats is None for stats in serve(scheduler, 1, 2, 1))
    assert journal.lines == []


def test_the_start_says_policy_parameters_and_memory(
    model: Path, journal: Journal
) -> None:
    scheduler = make_scheduler(
        model, "s3fifo", eviction_config={"small_ratio": 0.25}, num_blocks=40
    )
    assert type(queue_of(scheduler)) is PolicyFreeQueue
    (line,) = journal.of("INFO")
    assert "s3fifo {'small_ratio': 0.25}, 40 blocks" in line and "MiB" in line


def test_every_policy_serves(policy: str, model: Path) -> None:
    scheduler = make_scheduler(model, policy)
    told = serve(scheduler, *[1, 2, 3, 4, 5, 6, 1, 2] * 3)
    check_pool(scheduler.kv_cache_manager.block_pool)
    if policy != "lru":
        assert total(told, "evictions") > 0 and total(told, "failures") == 0
        assert {stats.eviction_stats["policy"] for stats in told} == {policy}


def test_without_prefix_caching_a_policy_is_one_warning(
    chooser: str, model: Path, journal: Journal
) -> None:
    scheduler = make_scheduler(model, chooser, enable_prefix_caching=False)
    assert scheduler.eviction is None
    assert type(queue_of(scheduler)) is FreeKVCacheBlockQueue
    (line,) = journal.of("WARNING")
    assert f"--eviction-policy {chooser} is ignored" in line
    serve(scheduler, 1, 1)


def test_a_policy_that_cannot_be_built_does_not_stop_the_engine(
    model: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Listener, num_slots: int, config: object) -> None:
        raise MemoryError("no room for ghosts")

    monkeypatch.setattr(Listener, "__init__", refuse)
    scheduler = make_scheduler(model, "test-listener")
    assert type(queue_of(scheduler)) is FreeKVCacheBlockQueue
    (line,) = journal.of("ERROR")
    assert "test-listener" in line and "LRU stays" in line
    told = serve(scheduler, 1, 1)
    # Whoever looks at /metrics or /eviction sees it, too.
    assert total(told, "failures") == 1
    assert {stats.eviction_stats["policy"] for stats in told} == {"lru"}
    assert "no room for ghosts" in scheduler.eviction.status()["failure"]


def test_hits_under_a_policy_are_counted_by_upstream(chooser: str, model: Path) -> None:
    scheduler = make_scheduler(model, chooser)
    upstream = [stats.prefix_cache_stats for stats in serve(scheduler, 1, 1)]
    assert [(stats.queries, stats.hits) for stats in upstream] == [(33, 0), (33, 32)]


def test_statistics_are_what_happened_since_the_last(model: Path) -> None:
    scheduler = make_scheduler(model, "s3fifo", num_blocks=20)
    told = serve(scheduler, *[1, 2, 3, 4, 1, 2, 3, 4] * 2)
    queue = queue_of(scheduler)
    assert total(told, "evictions") == queue.evictions > 0
    assert total(told, "rereferences") == queue.ghost_hits > 0
    idle = step(scheduler).eviction_stats
    assert (idle["evictions"], idle["rereferences"]) == (0, 0)


def test_blocks_asked_for_again_are_counted_once(model: Path) -> None:
    scheduler = make_scheduler(model, "s3fifo", num_blocks=20)
    evicted = total(serve(scheduler, 1, 2, 3), "evictions")
    assert 0 < evicted < 8  # blocks of the first
    assert total(serve(scheduler, 1), "rereferences") == evicted


def test_what_a_policy_cannot_count_is_none(model: Path) -> None:
    scheduler = make_scheduler(model, "sieve", num_blocks=11)
    told = serve(scheduler, 1, 2, 1)
    assert total(told, "evictions") > 0
    assert all(stats.eviction_stats["rereferences"] is None for stats in told)


def test_without_statistics_the_policy_works_all_the_same(model: Path) -> None:
    scheduler = make_scheduler(model, "test-listener", num_blocks=20, log_stats=False)
    assert serve(scheduler, 1, 2, 3, 1) == [None] * 4
    assert len(Listener.built.admissions) == 4
    assert queue_of(scheduler).evictions > 0


def test_a_reset_reaches_the_policy(rememberer: str, model: Path) -> None:
    scheduler = make_scheduler(model, rememberer, num_blocks=20)
    serve(scheduler, 1, 2, 3, 4, 1)
    queue = queue_of(scheduler)
    assert queue.num_ghosts > 0
    assert scheduler.reset_prefix_cache()
    assert queue.num_ghosts == 0
    told = serve(scheduler, 1, 2)
    assert (total(told, "evictions"), total(told, "rereferences")) == (0, 0)
    check_pool(scheduler.kv_cache_manager.block_pool)


def test_a_reset_under_running_requests(policy: str, model: Path) -> None:
    """They are preempted, resume on an empty cache, and end."""
    scheduler = make_scheduler(model, policy)
    for i in range(3):
        scheduler.add_request(make_request(f"{i}", [i] * 20, max_tokens=30))
    for _ in range(4):
        step(scheduler)
    assert not scheduler.reset_prefix_cache()
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    check_pool(scheduler.kv_cache_manager.block_pool)
    run_to_end(scheduler)
    check_pool(scheduler.kv_cache_manager.block_pool)
    assert scheduler.eviction is None or not scheduler.eviction._admitted


def test_a_failure_is_one_line_and_one_count(
    model: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Listener) -> int:
        raise RuntimeError("no idea\nat all")

    scheduler = make_scheduler(model, "test-listener", num_blocks=20)
    serve(scheduler, 1)
    monkeypatch.setattr(Listener, "victim", fail)
    told = serve(scheduler, 2, 3, 4, 5)
    check_pool(scheduler.kv_cache_manager.block_pool)
    assert total(told, "failures") == 1
    assert told[0].eviction_stats["policy"] == "test-listener"
    assert told[-1].eviction_stats["policy"] == "lru"
    (line,) = journal.of("ERROR")
    assert "test-listener" in line and "no idea" in line and "\n" not in line
    assert scheduler.eviction.live_policy == "lru"


def test_a_policy_in_python_is_found_by_its_name(model: Path) -> None:
    register_policy("test-late", "listening_policy", "Listener")
    try:
        scheduler = make_scheduler(model, "test-late")
        serve(scheduler, 1)
        assert len(Listener.built.admissions) == 1
    finally:
        unregister_policy("test-late")


def test_only_the_engines_pool_gets_the_policy(chooser: str, model: Path) -> None:
    """Host pools of offloading are built of the same class, and stay LRU."""
    from vllm.v1.core.block_pool import BlockPool

    make_scheduler(model, chooser)
    host = BlockPool(10, True, BLOCK_SIZE)
    assert type(host.free_block_queue) is FreeKVCacheBlockQueue


def gittins_with(state_file: Path | str, model: Path) -> Scheduler:
    """A scheduler whose policy keeps what it learns."""
    config = {"state_file": str(state_file)}
    return make_scheduler(model, "gittins", eviction_config=config)


def test_what_gittins_has_learnt_is_there_after_a_restart(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    first = gittins_with(path, model)
    serve(first, 1, 1, 2, 1)
    learnt = first.kv_cache_manager.block_pool.free_block_queue.model()
    first.eviction.shutdown()
    again = gittins_with(path, model)
    assert again.kv_cache_manager.block_pool.free_block_queue.model() == learnt
    assert learnt != make_scheduler(model, "gittins").eviction.queue.model()


def test_what_gittins_has_learnt_outlives_a_reset(model: Path) -> None:
    """And is not lost to the file either, when the engine ends after one."""
    scheduler = make_scheduler(model, "gittins")
    serve(scheduler, 1, 1, 2, 1)
    queue = queue_of(scheduler)
    learnt = queue.model()
    assert learnt != make_scheduler(model, "gittins").eviction.queue.model()
    assert scheduler.reset_prefix_cache()
    assert queue.model() == learnt
    check_pool(scheduler.kv_cache_manager.block_pool)


def test_what_is_learnt_is_written_while_the_engine_runs(
    model: Path, tmp_path: Path
) -> None:
    """It may be killed, and mostly is."""
    path = tmp_path / "state.json"
    scheduler = gittins_with(path, model)
    serve(scheduler, 1, 1, 2, 1)
    hooks = scheduler.eviction
    assert not path.exists()
    later = time.monotonic() + 60.0
    hooks.step(later)
    hooks.state_keepers[0].wait()
    again = gittins_with(path, model)
    assert again.eviction.queue.model() == hooks.queue.model()
    path.unlink()
    hooks.step(later + 59.0)
    hooks.state_keepers[0].wait()
    assert not path.exists()


@pytest.mark.parametrize("first", ["gittins", "lru"])
def test_what_a_shadow_has_learnt_is_there_after_a_restart(
    model: Path, tmp_path: Path, first: str
) -> None:
    """Of the live candidate too: its shadow learns whoever is live."""
    path = tmp_path / "state.json"
    gittins = {"name": "gittins", "state_file": str(path)}
    candidates = [gittins, "lru"] if first == "gittins" else ["lru", gittins]
    at = candidates.index(gittins)
    config = {"eviction_config": {"candidates": candidates, "threaded": False}}
    scheduler = make_scheduler(model, "adaptive", **config)
    untaught = scheduler.eviction.host.model(at)
    serve(scheduler, 1, 1, 2, 1)
    scheduler.eviction.step(time.monotonic() + 30.0)  # asks for the hits
    learnt = scheduler.eviction.host.model(at)
    assert learnt != untaught
    scheduler.shutdown()
    again = make_scheduler(model, "adaptive", **config)
    assert again.eviction.host.model(at) == learnt
    if first == "gittins":
        assert again.eviction.queue.model() == learnt


def test_a_broken_state_file_of_the_first_candidate_is_one_warning(
    model: Path, tmp_path: Path, journal: Journal
) -> None:
    """It is read once, for the shadow and the live policy."""
    path = tmp_path / "state.json"
    path.write_text("{}")
    candidates = [{"name": "gittins", "state_file": str(path)}, "lru"]
    make_scheduler(model, "adaptive", eviction_config={"candidates": candidates})
    (line,) = journal.of("WARNING")
    assert str(path) in line


@pytest.mark.parametrize("path", ["/", ".", "no/such/folder/state", "a\0b"])
def test_a_state_file_that_cannot_be_written_stops_nothing(
    model: Path, path: str
) -> None:
    scheduler = gittins_with(path, model)
    serve(scheduler, 1)
    scheduler.shutdown()


@pytest.mark.parametrize("name", ["gittins", "adaptive"])
@pytest.mark.parametrize(
    "broken", ["advance", "admit", "finish", "sync", "evictions", "model"]
)
def test_no_fault_of_ours_reaches_the_scheduler(
    model: Path,
    name: str,
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = make_scheduler(model, name, num_blocks=20)
    hooks = scheduler.eviction
    path = str(tmp_path / "state.json")
    hooks.state_keepers = [StateKeeper(hooks.queue, name, path)]
    serve(scheduler, 1, 2, 1)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    broken_one = property(fail) if broken == "evictions" else fail
    monkeypatch.setattr(PolicyFreeQueue, broken, broken_one, raising=False)
    told = serve(scheduler, 3, 1, 2)
    assert scheduler.reset_prefix_cache()
    told += serve(scheduler, 1, 1)
    scheduler.shutdown()
    monkeypatch.undo()
    assert told[-1].prefix_cache_stats.hits == 32
    check_pool(scheduler.kv_cache_manager.block_pool)
    if broken != "model":  # read at the end only
        assert "a bug" in hooks.status()["failure"]


def test_the_status_says_what_was_learnt(model: Path) -> None:
    scheduler = make_scheduler(model, "gittins")
    serve(scheduler, 1, 1, 1)
    # Two requests hit the first one's prompt.
    assert sum(scheduler.eviction.status()["learnt"]["hits"]) == 16
    assert make_scheduler(model, "arc").eviction.status()["learnt"] == {}
