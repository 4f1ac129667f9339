# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a policy remembers of evicted blocks: bounded, and only real evictions.

Where a policy has no ghosts these hold all the more.
"""

# ghost_limit is at most this many times the slots, and one. The headers say so.
MOST_GHOSTS = {
    "workload-aware": 0.5,
    "s3fifo": 0.9,
    "s4fifo": 0.9,
    "arc": 1.0,
    "2q": 0.5,
    "lirs": 0.75,
    "lecar": 0.5,
}


def is_remembered(policy, key: int) -> bool:
    """Ask for a key, and see whether that was a ghost."""
    hits = policy.ghost_hits
    policy.admit(99, [key], [None], 0.0)
    return policy.ghost_hits > hits


def test_ghosts_and_memory_are_bounded_for_ever(make, policy):
    num_slots = 50
    cache = make(num_slots)
    blocks = num_slots + 1  # in the live queue one is the null block
    assert cache.ghost_limit <= MOST_GHOSTS.get(policy, 1.0) * blocks + 1
    size = cache.bytes
    most = 0
    for slot in range(num_slots):
        cache.insert(slot, 1 + slot)
    for key in range(num_slots + 1, 200 * num_slots):
        slot = cache.victim()
        asked = [key, max(1, key - num_slots - 9)]  # the second may be a ghost
        cache.admit(key, asked, [None, None], 0.0)
        cache.insert(slot, key)
        most = max(most, cache.num_ghosts)
    cache.check()
    assert most <= cache.ghost_limit
    assert cache.bytes == size


def test_an_evicted_block_may_be_remembered_once_and_not_while_resident(make):
    cache = make(4)
    for slot in range(4):
        cache.insert(slot, 1 + slot)
    slot = cache.victim()
    if not is_remembered(cache, 1 + slot):
        return  # it has no ghosts
    ghosts = cache.num_ghosts
    cache.insert(slot, 1 + slot)
    assert cache.num_ghosts == ghosts - 1, "the ghost leaves when the block returns"
    cache.check()


def test_a_forgotten_block_leaves_no_ghost(make):
    """Its content went by other ways than eviction: that was nobody's mistake."""
    cache = make(4)
    for slot in range(4):
        cache.insert(slot, 1 + slot)
    cache.forget(0)  # evictable
    cache.take(1)
    cache.forget(1)  # in use
    assert cache.num_ghosts == 0
    assert not is_remembered(cache, 1) and not is_remembered(cache, 2)
    assert sorted(cache.peek(4)) == [2, 3]
    cache.check()


def test_a_forgotten_slot_starts_anew(make):
    """What was learnt belonged to the content. Slot 0 is hit, loses its content, and
    is filled like slot 1: then it is treated like slot 1, that is, first."""
    cache = make(2)
    cache.insert(0, 1)
    cache.take(0)
    cache.admit(1, [1], [0], 0.0)
    cache.forget(0)
    cache.insert(0, 2)
    cache.insert(1, 3)
    assert cache.peek(2) == [0, 1]


def test_a_disowned_victim_leaves_no_ghost(make, place):
    """In the live queue the block was emptied behind the queue's back."""
    cache = make(3)
    for slot in range(3):
        cache.insert(slot, 1 + slot)
    (next_victim,) = cache.peek(1)
    if hasattr(cache, "pool"):
        cache.pool.evict_blocks({next_victim + 1})
    assert cache.victim() == next_victim
    cache.disown(1 + next_victim)
    assert cache.num_ghosts == 0
    assert not is_remembered(cache, 1 + next_victim)
