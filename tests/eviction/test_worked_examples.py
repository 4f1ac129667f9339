# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies that are queues on a handful of accesses, worked out by hand.

To be read beside the paper. Lists are written with the next to go first.
"""

from typing import Any

import pytest
from vllm._eviction_C import make_policy

from tests.eviction.letters import Letters

# ---- LRU ----


def test_lru():
    cache = Letters("lru", 3)
    # A B C fill the cache; the hit makes it B C A.
    assert cache.play("ABCA") == ["room", "room", "room", "hit"]
    # D for B: C A D.  B for C: A D B.
    assert cache.play("DB") == ["B", "C"]
    assert cache.play("A") == ["hit"]  # D B A
    assert cache.play("C") == ["D"]


def test_lru_evicts_the_tail_of_a_request_first():
    lru: Any = make_policy("lru", 4)
    # A request of the blocks 1 2 3, in slots 0 1 2, ends: released tail first.
    for slot in (2, 1, 0):
        lru.insert(slot, slot + 1)
    assert lru.peek(4) == [2, 1, 0]
    # The next one shares 1 and 2, and computes 9 in slot 3.
    lru.take(0)
    lru.take(1)
    lru.admit(2, [1, 2, 9], [0, 1, None], 0.0)
    assert lru.peek(4) == [2], "what is in use cannot go"
    lru.insert(3, 9)
    lru.reinsert(1)
    lru.reinsert(0)
    # 3 of the first request, then the second's from its tail on.
    assert [lru.victim() for _ in range(4)] == [2, 3, 1, 0]


# ---- T-LRU ----


def ended(policy: Any, serial: int, slots: range) -> None:
    """A request ends whose blocks, of 16 tokens, are these: released tail first."""
    policy.finish(serial, [1 + slot for slot in slots], 0.0)
    for slot in reversed(slots):
        policy.insert(slot, 1 + slot, depth=16 * (1 + slot - slots.start))


def test_t_lru_gives_up_what_can_be_recomputed_in_time():
    """40 tokens may be recomputed, and 8 are expected: 32 of the end are spare."""
    policy: Any = make_policy("t-lru", 8, {"xi": 40, "next_prompt": 8})
    ended(policy, 1, range(4))  # 64 tokens: of A B C D the last two are spare
    ended(policy, 2, range(4, 6))  # 32 tokens: E F are spare
    assert policy.peek(8) == [3, 2, 5, 4, 1, 0]
    # The first goes on to 96 tokens, of which 64 matter: C and D do now.
    for slot in range(4):
        policy.take(slot)
    policy.admit(3, [1, 2, 3, 4], list(range(4)), 0.0)
    policy.finish(3, [1, 2, 3, 4, 7, 8], 0.0)
    for slot in (7, 6):
        policy.insert(slot, 1 + slot, depth=16 * (slot - 1))
    for slot in (3, 2, 1, 0):
        policy.reinsert(slot)
    assert policy.peek(8) == [5, 4, 7, 6, 3, 2, 1, 0]


def test_t_lru_keeps_what_a_longer_conversation_needs():
    policy: Any = make_policy("t-lru", 4, {"xi": 40, "next_prompt": 8})
    ended(policy, 1, range(4))
    policy.take(0)
    policy.admit(2, [1], [0], 0.0)
    policy.finish(2, [1], 0.0)
    policy.reinsert(0)  # a conversation of 16 tokens, none of which matters
    assert policy.peek(4) == [3, 2, 1, 0]


# ---- SLRU ----


def test_slru():
    # Of four blocks two may be protected.
    cache = Letters("slru", 4, {"protected_ratio": 0.5})
    assert cache.play("ABCD") == ["room"] * 4  # probation A B C D
    assert cache.play("AB") == ["hit", "hit"]  # probation C D, protected A B
    # C is protected, for which A goes back, to the end of the probation.
    assert cache.play("C") == ["hit"]  # probation D A, protected B C
    assert cache.play("E") == ["D"]  # probation A E
    assert cache.play("A") == ["hit"]  # probation E B, protected C A
    assert cache.play("FG") == ["E", "B"]


def test_slru_evicts_protected_blocks_when_there_are_no_others():
    slru: Any = make_policy("slru", 3, {"protected_ratio": 0.9})
    for slot in range(3):
        slru.admit(slot, [slot + 1], [slot], 0.0)
        slru.insert(slot, slot + 1)
    slru.take(0)  # the share was full of 0: it is in the probation
    assert slru.peek(3) == [1, 2]


# ---- 2Q ----


def test_2q():
    # Of four blocks one may be in A1in before it pays. Four ghosts.
    cache = Letters("2q", 4, {"ghost_ratio": 1.0})
    assert cache.play("ABCD") == ["room"] * 4  # A1in A B C D
    assert cache.play("A") == ["hit"]  # which counts for nothing
    assert cache.play("E") == ["A"]  # A1in B C D E, A1out A
    assert cache.play("A") == ["B"]  # A1in C D E, Am A, A1out B
    assert cache.play("C") == ["hit"]
    assert cache.play("F") == ["C"]  # A1in D E F, Am A, A1out B C
    assert cache.play("CB") == ["D", "E"]  # A1in F, Am A C B, A1out D E
    assert cache.play("A") == ["hit"]  # Am C B A
    # A1in is at its quarter, not over it: Am pays, and leaves no ghost.
    assert cache.play("G") == ["C"]  # A1in F G, Am B A
    assert cache.play("C") == ["F"]  # C is new again: A1in G C
    assert cache.policy.num_ghosts == 3  # D E F


# ---- LIRS ----


def lirs_of_the_paper() -> Letters:
    """The state of its table 1 at time 10, with two LIR blocks of three: the stack is
    B D A E from its bottom, A and B are LIR, E is resident, D is not."""
    cache = Letters("lirs", 3, {"hir_ratio": 0.34, "ghost_ratio": 1.0})
    assert cache.play("ABAB") == ["room", "room", "hit", "hit"]  # both are LIR
    assert cache.play("DAE") == ["room", "hit", "D"]
    assert cache.policy.num_ghosts == 1
    return cache


def test_lirs_if_d_is_used():
    cache = lirs_of_the_paper()
    # E goes. D was used since B was: it is LIR, and B is not any more.
    assert cache.play("D") == ["E"]  # stack A E D, Q B
    assert cache.play("F") == ["B"]  # stack A E D F
    # So E, which is no LIR block, was in the stack, and takes the place of A.
    assert cache.play("E") == ["F"]  # stack D F E, Q A
    assert cache.play("G") == ["A"]


def test_lirs_if_c_is_used():
    cache = lirs_of_the_paper()
    # E goes. C was used before B was, so that the stack has lost it: HIR.
    assert cache.play("C") == ["E"]  # stack B D A E C, Q C
    assert cache.play("F") == ["C"]
    assert cache.play("AB") == ["hit", "hit"]


def test_lirs_counts_on_when_its_clock_is_full():
    """Two LIR blocks and an HIR block, at the end of 31 bits."""
    end = 2**31 - 2
    lirs: Any = make_policy("lirs", 3, {"hir_ratio": 0.34})
    # Key, whether LIR, twice the time of the last use. All are in the stack.
    known = [(3, 0, 2 * end - 2), (1, 1, 2 * end - 6), (2, 1, 2 * end - 4)]
    lirs.adopt([(0, 1), (1, 2), (2, 3)], [], (known, [[], []], [end - 3]))
    for serial, slot in enumerate([2, *[0] * 8]):
        lirs.take(slot)
        lirs.admit(serial, [slot + 1], [slot], 0.0)
        lirs.reinsert(slot)
        lirs.check()
    # 3 became LIR in place of 1, and after two uses 1 in place of 2.
    assert lirs.peek(3) == [1, 2, 0]


# ---- S3-FIFO ----


def test_s3fifo_promotes_and_remembers():
    # Half of the four blocks may be in the small queue. Three ghosts (0.9 x 4).
    cache = Letters("s3fifo", 4, {"small_ratio": 0.5})
    assert cache.play("ABCD") == ["room"] * 4  # small A B C D
    assert cache.play("A") == ["hit"]  # one use; nothing moves
    # Small is over its half. A was used: to main. B was not: out, a ghost.
    assert cache.play("E") == ["B"]  # small C D E, main A, ghost B
    # B is a ghost: C makes room, and B enters main at once.
    assert cache.play("B") == ["C"]  # small D E, main A B, ghost C
    # Small has its half, which counts as full.
    assert cache.play("F") == ["D"]  # small E F, main A B, ghosts C D
    assert cache.play("AB") == ["hit", "hit"]
    assert cache.play("D") == ["E"]  # small F, main A B D, ghosts C E
    # Small is under its half, so main pays. A and B have one use each: spared once,
    # and behind D, which has none. What leaves main is no ghost.
    assert cache.play("G") == ["D"]  # small F G, main A B
    assert cache.policy.num_ghosts == 2


def test_s3fifo_with_the_papers_promotion_wants_two_uses():
    parameters = {"small_ratio": 0.5, "promotion": 2}
    cache = Letters("s3fifo", 4, parameters)
    cache.play("ABCD")
    assert cache.play("AA") == ["hit", "hit"]
    assert cache.play("B") == ["hit"]
    # A has two uses: to main. B has one: that is too few.
    assert cache.play("E") == ["B"]


def test_s3fifo_main_gives_three_chances_at_most():
    cache = Letters("s3fifo", 2, {"small_ratio": 0.5, "ghost_ratio": 8})
    cache.play("ABCDEF")  # A to D are ghosts now, and enter main when they return
    assert cache.play("AB") == ["E", "F"]  # main A B
    cache.play("AAAAAAAAA")  # nine uses of A count as three
    cache.play("B")  # one of B
    # A 2, B 0, A 1, and B goes: two of A's chances.
    assert cache.play("C") == ["B"]  # main A C
    assert cache.play("D") == ["C"]  # A's third
    assert cache.play("E") == ["A"]


def test_s3fifo_chooses_the_queue_anew_after_a_promotion():
    """A is promoted; small is then under its share, and main pays: with A, which
    starts without uses. In the authors' code B would go."""
    cache = Letters("s3fifo", 2, {"small_ratio": 0.9})
    cache.play("AB")
    cache.play("A")
    assert cache.play("C") == ["A"]


def test_s3fifo_forgets_the_oldest_ghost():
    cache = Letters("s3fifo", 2, {"small_ratio": 0.5, "ghost_ratio": 1.0})
    cache.play("ABCDE")  # A B C went; two ghosts fit: B C
    assert cache.policy.num_ghosts == 2
    cache.play("A")
    assert cache.policy.ghost_hits == 0
    cache.play("C")
    assert cache.policy.ghost_hits == 1


# ---- S4-FIFO ----


def test_s4fifo_does_not_count_uses_within_a_moment():
    # Half of the small queue must have entered since: of four blocks two.
    cache = Letters("s4fifo", 4, {"rho_s": 0.5, "kappa": 0.5})
    cache.play("ABCD")
    assert cache.play("DB") == ["hit", "hit"]  # D is too young for it to count
    # A was not used. B was, and is promoted; C and D were not, as it counts.
    assert cache.play("EFG") == ["A", "C", "D"]


def test_s4fifo_remembers_what_was_used_once():
    knobs = {"rho_s": 0.5, "rho_g": 1.0, "kappa": 0, "tau_s": 2, "tau_g": 1}
    cache = Letters("s4fifo", 3, knobs)
    cache.play("ABC")
    assert cache.play("B") == ["hit"]
    assert cache.play("DE") == ["A", "B"]  # B had too few uses to stay
    assert cache.policy.num_ghosts == 1  # but is remembered, and A is not
    assert cache.play("B") == ["C"]  # main B
    assert cache.play("FG") == ["D", "E"]
    assert cache.play("B") == ["hit"]


# ---- SIEVE ----


def test_sieve():
    cache = Letters("sieve", 3)
    cache.play("ABC")
    assert cache.play("A") == ["hit"]  # A* B C, the hand at A; * is visited
    # The hand spares A and clears its mark, evicts B, and stops at C.
    assert cache.play("D") == ["B"]  # A C D, hand at C
    assert cache.play("E") == ["C"]  # A D E, hand at D: A is safe though oldest
    assert cache.play("D") == ["hit"]  # A D* E
    # D is spared, E goes. It was the newest: the hand starts over at the oldest.
    assert cache.play("F") == ["E"]  # A D F
    assert cache.play("G") == ["A"]  # not F, which arrived where the hand had been


def test_sieve_goes_round_when_all_are_visited():
    cache = Letters("sieve", 3)
    cache.play("ABC")
    cache.play("CAB")
    # All marks are cleared on the way round; then the oldest has none.
    assert cache.play("D") == ["A"]
    assert cache.play("E") == ["B"]


def test_sieve_passes_over_blocks_in_use_and_keeps_their_place():
    sieve: Any = make_policy("sieve", 3)
    for slot in range(3):
        sieve.insert(slot, slot + 1)
    sieve.take(0)
    assert sieve.peek(3) == [1, 2]
    sieve.reinsert(0)  # a pin: no mark, and its old place
    assert sieve.peek(3) == [0, 1, 2]


# ---- ARC ----


def target(cache: Letters) -> float:
    (p,) = cache.policy.snapshot()[2]
    return p


def test_arc():
    cache = Letters("arc", 4)
    cache.play("ABCD")
    assert cache.play("A") == ["hit"]  # T1 B C D, T2 A; p = 0
    # |T1| = 3 > p: T1 pays.
    assert cache.play("E") == ["B"]  # T1 C D E, T2 A, B1 B
    # A ghost of B1: p grows by max(1, |B2| / |B1|) = 1. |T1| = 3 > 1. B into T2.
    assert cache.play("B") == ["C"]  # T1 D E, T2 A B, B1 C
    assert target(cache) == 1
    assert cache.play("F") == ["D"]  # |T1| = 2 > 1. T1 E F, T2 A B, B1 C D
    # B1 again: p = 2, and |T1| = 2 is not more: T2 pays.
    assert cache.play("C") == ["A"]  # T1 E F, T2 B C, B1 D, B2 A
    assert target(cache) == 2
    # A ghost of B2: p shrinks by max(1, |B1| / |B2|) = 1. |T1| = 2 > 1.
    assert cache.play("A") == ["E"]  # T1 F, T2 B C A, B1 D E
    assert target(cache) == 1
    # |T1| = 1 is not more than p: T2 pays.
    assert cache.play("G") == ["B"]  # T1 F G, T2 C A, B1 D E, B2 B


def test_arc_learns_by_the_ratio_of_its_ghost_lists():
    cache = Letters("arc", 4)
    cache.play("ABCDABCD")  # T2 A B C D
    cache.play("EFG")  # T2 pays: nothing is in T1 when E comes, then |T1| > 0
    # E took A's place; F took E's, G took F's: T1 G, T2 B C D, B1 E F, B2 A.
    assert cache.policy.num_ghosts == 3
    # B2: p = 0 - max(1, 2 / 1) is cut off at 0. |T1| = 1 > 0: G goes.
    assert cache.play("A") == ["G"]  # T2 B C D A, B1 E F G
    assert target(cache) == 0
    # B1: p = 0 + max(1, 0 / 3) = 1. T1 is empty: T2 pays.
    assert cache.play("F") == ["B"]  # T2 C D A F, B1 E G, B2 B
    assert target(cache) == 1


def test_arc_bounds_t1_and_its_ghosts_together():
    """A scan leaves no ghosts: |T1| + |B1| <= c, and T1 holds c already."""
    cache = Letters("arc", 3)
    assert cache.play("ABCDEF")[3:] == ["A", "B", "C"]
    assert cache.policy.num_ghosts == 0
    assert cache.play("A") == ["D"]
    assert target(cache) == 0


# ---- What blocks in use have to do with it ----


@pytest.mark.parametrize("name", ["s3fifo", "sieve", "arc", "lfu"])
def test_a_hit_before_the_first_release_counts(name: str):
    """Another request uses a block while the first still computes; then the block is
    not new any more when it is released."""
    policy: Any = make_policy(name, 2)
    policy.admit(1, [1], [0], 0.0)
    policy.insert(0, 1)
    policy.insert(1, 2)
    assert policy.victim() == 1


@pytest.mark.parametrize("name", ["s3fifo", "sieve", "arc", "lfu", "slru"])
def test_a_pin_is_no_hit(name: str):
    """Connectors take blocks and give them back; nobody asked for the content."""
    policy: Any = make_policy(name, 3)
    for slot in range(3):
        policy.insert(slot, slot + 1)
    for slot in range(2):
        policy.take(slot)
    policy.admit(1, [2], [1], 0.0)  # one of the two is a hit
    for slot in range(2):
        policy.reinsert(slot)
    order = policy.peek(3)
    assert order.index(0) < order.index(1)
    assert order[-1] == 1
