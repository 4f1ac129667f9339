# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A policy that raises or talks nonsense: serving goes on in LRU order, for good.

No block is lost or given out twice, whatever method fails, and when.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_traffic import Operation, PoolTraffic, operations
from real_pool import ask, check_pool, drain, find, ids, make_pool, store
from vllm._eviction_C import wrap_policy
from vllm.v1.core.block_pool import BlockPool

from vllm.v1.core.eviction.free_queue import PolicyFreeQueue
from vllm.v1.core.eviction.policy import BlockInfo, Fifo, NoConfig


class Saboteur(Fifo):
    """First in, first out, until one method is replaced."""

    def __init__(self, num_slots: int):
        super().__init__(num_slots, NoConfig())
        self.calls: dict[str, int] = {}
        self.faults: dict[str, tuple[int, Callable[[], Any]]] = {}

    def sabotage(self, method: str, fault: Callable[[], Any], after: int = 0) -> None:
        """Call `fault` in the place of a method, from its call number `after` on."""
        self.faults[method] = self.calls.get(method, 0) + after, fault

    def admit(self, serial: int, keys: list, slots: list, now: float) -> None:
        pass

    def finish(self, serial: int, keys: list, now: float) -> None:
        pass

    def advance(self, now: float) -> None:
        pass

    def num_ghosts(self) -> int:
        return 0  # that it is there says that it wants to know what to disown

    def disown(self, key: int) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        get = super().__getattribute__
        if name in METHODS:
            calls = get("calls")
            calls[name] = calls.get(name, 0) + 1
            start, fault = get("faults").get(name, (0, None))
            if fault is not None and calls[name] > start:
                return lambda *_: fault()
        return get(name)


METHODS = [
    "insert", "reinsert", "take", "victim", "forget", "peek", "clear",
    "admit", "finish", "advance", "disown",
]  # fmt: skip


def raise_error() -> None:
    raise RuntimeError("out of ideas")


def make_sabotaged(
    num_blocks: int = 10, events: bool = False
) -> tuple[BlockPool, PolicyFreeQueue, Saboteur]:
    pool = make_pool(num_blocks, events=events)
    policy = Saboteur(num_blocks)
    queue = PolicyFreeQueue(pool, wrap_policy(policy, num_blocks))
    pool.free_block_queue = queue
    return pool, queue, policy


def use(pool: BlockPool) -> None:
    """Blocks that come, are used again, and are released in another order."""
    store(pool, 1, 2, 3, 4, 5, 6)
    for content in (2, 4):
        pool.touch(blocks := [find(pool, content)])
        pool.free_blocks(blocks)


def trigger(pool: BlockPool, method: str) -> None:
    """What makes the queue call this method of its policy."""
    queue = pool.free_block_queue
    ours = isinstance(queue, PolicyFreeQueue)
    if method == "insert":
        store(pool, 7)
    elif method == "reinsert":
        pool.touch([pool.blocks[1]])
        pool.free_blocks([pool.blocks[1]])
    elif method == "take":
        pool.touch([pool.blocks[3]])
    elif method == "victim":
        pool.get_new_blocks(4)
    elif method == "forget":
        pool.touch([pool.blocks[5]])
        pool.evict_blocks({5})
        pool.free_blocks([pool.blocks[5]])
    elif method == "peek":
        queue.get_all_free_blocks()
    elif method == "clear":
        pool.reset_prefix_cache()
    elif method == "disown":
        pool.evict_blocks({1})
        pool.get_new_blocks(4)
    elif ours:
        if method == "admit":
            ask(queue, 1, find(pool, 1))
        elif method == "finish":
            queue.finish(1, [], 0.0)
        else:
            queue.advance(1.0)
    if ours:
        queue.sync()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_raises_is_the_end_of_the_policy(method: str) -> None:
    pool, queue, policy = make_sabotaged()
    upstream = make_pool(10)
    use(pool)
    use(upstream)
    policy.sabotage(method, raise_error)
    trigger(pool, method)
    trigger(upstream, method)
    assert "out of ideas" in queue.failure
    check_pool(pool)
    calls = dict(policy.calls)
    # From now on the order is upstream's.
    for each in (pool, upstream):
        store(each, 20, 21)
        each.touch(blocks := [find(each, 21)])
        each.free_blocks(blocks)
    check_pool(pool)
    assert drain(pool) == drain(upstream)
    assert policy.calls == calls, "the policy was asked again"


NONSENSE: list[tuple[str, Any]] = [
    ("victim", None),
    ("victim", "block 7"),
    ("victim", -1),
    ("victim", 2.5),
    ("victim", 10),  # one more than there are
    ("victim", 2**40),
    ("victim", 0),  # the null block
    ("victim", 9),  # free, but not the policy's
    ("victim", 8),  # in use
    ("peek", None),
    ("peek", []),
    ("peek", [1]),
    ("peek", [1, 2, 3, 4, 5, 6, 9]),
    ("peek", [1, 1, 2, 3, 4, 5]),
    ("peek", [1, 2, 3, 4, 5, -6]),
    ("peek", "123456"),
    ("admit", "many"),
    ("admit", -3),
]


@pytest.mark.parametrize(("method", "answer"), NONSENSE)
def test_a_nonsensical_answer_is_the_end_of_the_policy(
    method: str, answer: Any
) -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)
    pool.touch([pool.blocks[8]])
    policy.sabotage(method, lambda: answer)
    trigger(pool, "peek")
    trigger(pool, method)
    assert queue.failure
    check_pool(pool)
    pool.free_blocks([pool.blocks[8]])
    check_pool(pool)


@pytest.mark.parametrize("answer", [None, "many", -3, 2.5])
def test_the_failure_names_the_nonsense(answer: Any) -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)
    policy.sabotage("victim", lambda: answer)
    pool.get_new_blocks(9)
    assert queue.failure == f"victim() returned {answer!r}"


def test_answers_that_no_one_reads_do_no_harm() -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)
    for method in set(METHODS) - {"victim", "peek", "admit"}:
        policy.sabotage(method, lambda: "thank you")
    trigger(pool, "finish")
    trigger(pool, "advance")
    assert queue.failure == ""


def test_a_policy_that_forgets_its_blocks_loses_none() -> None:
    """Its own books are wrong; those of the queue are not."""
    pool, queue, policy = make_sabotaged()
    use(pool)
    policy._evictable.clear()
    policy._arrival.clear()
    assert len(set(drain(pool))) == 9
    check_pool(pool)
    assert queue.failure


def test_a_failure_in_the_middle_of_an_allocation_completes_it() -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)
    policy.sabotage("victim", raise_error, after=2)
    assert len(set(ids(pool.get_new_blocks(9)))) == 9
    assert queue.failure
    check_pool(pool)


def test_what_was_counted_outlives_a_failure() -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)
    pool.get_new_blocks(5)
    evictions = queue.evictions
    assert evictions == 2
    policy.sabotage("victim", raise_error)
    pool.get_new_blocks(4)
    assert queue.evictions == 6


def test_ctrl_c_in_a_policy_reaches_the_program() -> None:
    pool, queue, policy = make_sabotaged()
    use(pool)

    def interrupt() -> None:
        raise KeyboardInterrupt

    policy.sabotage("take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pool.touch([pool.blocks[1]])
        time.sleep(0)
    assert pool.blocks[1] not in queue


def test_a_python_policy_is_told_what_its_interface_says() -> None:
    told: list[Any] = []

    class Listener(Saboteur):
        def insert(self, slot: int, key: int, info: BlockInfo) -> None:
            told.append(info)
            super().insert(slot, key, info)

        def admit(self, serial: int, keys: list, slots: list, now: float) -> int:
            told.append((serial, slots, now))
            return 2

    pool = make_pool(10)
    queue = PolicyFreeQueue(pool, wrap_policy(Listener(10), 10))
    pool.free_block_queue = queue
    block = store(pool, 1)[0]
    ask(queue, 1, block)
    ask(queue, 2, None)
    assert queue.failure == ""
    info, hit, miss = told
    assert isinstance(info, BlockInfo) and info.depth == 4
    assert hit == (1, [block.block_id], 1.0) and miss == (1, [None], 1.0)
    assert queue.ghost_hits == 4


@settings(max_examples=100)
@given(operations, st.sampled_from(METHODS), st.integers(0, 30))
def test_nothing_is_lost_whenever_a_policy_fails(
    sequence: list[Operation], method: str, after: int
) -> None:
    pool, queue, policy = make_sabotaged(14, events=True)
    policy.sabotage(method, raise_error, after)
    traffic = PoolTraffic(pool)
    for operation in sequence:
        traffic.run(operation)
    if policy.calls.get(method, 0) > after:
        assert queue.failure
