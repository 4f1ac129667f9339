# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Each policy on a handful of accesses, worked out by hand.

To be read beside the paper. `play` says for each access what it led to: `hit`,
`room` where no block had to go, or the letter of the block that went. Lists are
written with the next to go first.
"""

import math
from typing import Any

import pytest
from vllm._eviction_C import make_policy

from tests.eviction.unpinned_cache import UnpinnedCache


class Letters(UnpinnedCache):
    def play(self, accesses: str) -> list[str]:
        return [self._outcome(ord(letter)) for letter in accesses]

    def _outcome(self, key: int) -> str:
        before = set(self._slots)
        if self.get(key):
            return "hit"
        gone = before - set(self._slots)
        return chr(gone.pop()) if gone else "room"


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


# ---- LFU ----


def test_lfu_without_ageing():
    cache = Letters("lfu", 3, {"ageing": 0})
    cache.play("ABC")
    assert cache.play("AAB") == ["hit"] * 3  # A 3, B 2, C 1
    assert cache.play("D") == ["C"]
    assert cache.play("E") == ["D"]  # and so on: A and B stay for ever
    assert cache.play("DE") == ["E", "D"]


def test_lfu_ages():
    cache = Letters("lfu", 3)
    cache.play("ABC")
    cache.play("AAB")  # ranks A 3, B 2, C 1
    assert cache.play("D") == ["C"]  # age 1, so D 2, behind B
    assert cache.play("E") == ["B"]  # age 2: E 3
    assert cache.play("D") == ["hit"]  # two uses at age 2: D 4
    assert cache.play("F") == ["A"]  # of A 3 and E 3 the older; age 3: F 4
    assert cache.play("G") == ["E"]


def test_lfu_counts_uses_to_1023():
    """More tie with it, and then the order of release decides."""
    cache = Letters("lfu", 2, {"ageing": 0})
    cache.play("A" * 1500 + "B" * 1023)
    assert cache.play("C") == ["A"]


# ---- GDSF ----


def test_gdsf_keeps_what_is_dear():
    """A costs 3, the others 1; priorities in units of 1/256."""
    gdsf: Any = make_policy("gdsf", 4)
    for slot in range(3):  # A 768, B 256, C 256
        gdsf.insert(slot, slot + 1, cost=3.0 if slot == 0 else 1.0)
    assert gdsf.victim() == 1  # of equals the older; the clock is 256
    gdsf.insert(1, 4)  # D 512
    assert gdsf.peek(3) == [2, 1, 0]
    gdsf.take(2)
    gdsf.admit(1, [3], [2], 0.0)
    gdsf.reinsert(2)  # C has two uses: 256 + 512 = 768, behind A
    assert gdsf.peek(3) == [1, 0, 2]


def test_gdsf_bounds_the_cost():
    """Zero is as good as 1/256, and nothing is dearer than 8,191 blocks."""
    gdsf: Any = make_policy("gdsf", 4)
    for slot, cost in enumerate([1e30, 8191.9, 0.0, 0.003]):
        gdsf.insert(slot, slot + 1, cost=cost)
    assert gdsf.peek(4) == [2, 3, 1, 0]


# ---- W-TinyLFU ----


def test_wtinylfu():
    # Of four blocks one is the window's, and two may be protected.
    cache = Letters("wtinylfu", 4, {"protected_ratio": 0.7, "climb": 0})
    assert cache.play("ABCD") == ["room"] * 4  # window D, probation A B C
    assert cache.play("A") == ["hit"]  # probation B C, protected A; two uses
    # D and B have one use each: the older goes. C, as old as D in use, is next.
    assert cache.play("E") == ["B"]  # window E, probation C D, protected A
    assert cache.play("EE") == ["hit", "hit"]
    # E has three uses, C one: E moves to the main part.
    assert cache.play("F") == ["C"]  # window F, probation D E, protected A
    assert cache.play("D") == ["hit"]  # probation E, protected A D
    # F was used once, E three times: the newcomer goes.
    assert cache.play("G") == ["F"]
    assert cache.play("AED") == ["hit"] * 3


def test_wtinylfu_climbs():
    """The hit rate rises, so the window grows by a sixteenth of the pool; then it
    falls, and the window shrinks."""
    cache = Letters("wtinylfu", 32)
    window: Any = lambda: cache.policy.snapshot()[2][0]  # noqa: E731
    assert window() == 1
    cache.play("AB" * 160)
    assert window() == 3
    cache.play("".join(chr(1000 + n) for n in range(320)))
    assert window() == 1


# ---- LHD ----


def use(policy: Any, serial: int, *slots: int) -> None:
    """A request hits the blocks, of which slot n holds key n + 1, and ends at once."""
    for slot in slots:
        policy.take(slot)
    policy.admit(serial, [slot + 1 for slot in slots], list(slots), 0.0)
    for slot in reversed(slots):
        policy.reinsert(slot)


def test_lhd_learns_at_which_age_hits_come():
    """Two slots: ages are in accesses, and a period is 16 of them."""
    lhd: Any = make_policy("lhd", 2)
    lhd.insert(0, 1)
    lhd.insert(1, 2)
    use(lhd, 1, 0, 1)  # age 0: accessed 2
    lhd.admit(2, [3], [None], 0.0)  # age 1
    assert lhd.peek(2) == [1, 0]
    use(lhd, 3, 0)  # at age 1
    for serial in range(4, 14):
        use(lhd, serial, 0)  # at age 0, ten times
    assert lhd.victim() == 1  # at age 12
    lhd.admit(14, [3, 4], [None, None], 0.0)  # which ends the period
    scalars = lhd.snapshot()[2]
    density = [scalars[3 + 3 * 256 * c + 2 * 256 :][:256] for c in range(10)]
    # New blocks, class 0: two hits at age 0, and no more.
    assert density[0][0] == 1 and density[0][1] == 0
    # Hit at age 0 before, class 9: eight hits of age 0, one of 1, an eviction of 12.
    assert density[9][0] == pytest.approx(9 / (10 + 2 + 11))
    assert density[9][1] == pytest.approx(1 / (2 + 11))
    assert density[9][12] == 0
    # Hit at ages 0 and 1, class 8: two hits at age 0.
    assert density[8][:2] == [1, 0]


# ---- Workload-aware ----


def test_workload_aware_knows_the_turn_and_what_is_shared():
    policy: Any = make_policy("workload-aware", 4)

    def category(key: int) -> int:
        return {k: queue & 15 for k, queue, _ in policy.snapshot()[0]}[key]

    policy.admit(1, [1], [None], 0.0)
    policy.finish(1, [1], 0.0)
    policy.insert(0, 1)
    assert category(1) == 0  # turn 1
    policy.take(0)
    policy.admit(2, [1, 2], [0, None], 0.0)  # its conversation goes on
    policy.finish(2, [1, 2], 0.0)
    policy.insert(1, 2)
    policy.reinsert(0)
    assert category(1) == category(2) == 1  # turn 2
    use(policy, 3, 0, 1)
    assert category(1) == category(2) == 2  # turns 3 and 4
    use(policy, 4, 0)  # the first block again, as if it were turn 2
    assert category(1) == 4 + 1, "hit three times, which its conversation explains not"
    assert category(2) == 2


def test_workload_aware_evicts_what_does_not_return():
    """Blocks of second turns return, those of first turns do not."""
    policy: Any = make_policy("workload-aware", 3, {"horizon": 4})
    policy.insert(0, 1)
    for serial in range(10):
        use(policy, serial, 0)  # turn 2 each time, and after a while shared
    policy.insert(1, 2)
    use(policy, 11, 0)
    policy.insert(2, 3)
    assert policy.peek(3) == [1, 2, 0]


# ---- AsymCache ----


def test_asymcache_weighs_cost_against_age():
    """Four slots: four accesses make up for half the cost."""
    policy: Any = make_policy("asymcache", 4)
    policy.insert(0, 1, cost=4.0)  # 2 in logarithms
    policy.insert(1, 2, cost=1.0)  # 0
    assert policy.peek(4) == [1, 0]
    policy.admit(1, [7, 8, 9, 10], [None] * 4, 0.0)
    policy.insert(2, 3, cost=2.0)  # 1 + 1
    policy.insert(3, 4, cost=1.5)  # less than that
    assert policy.peek(4) == [1, 3, 0, 2]
    use(policy, 2, 1)  # two uses: 1, and 5 accesses: 1.25
    assert policy.peek(4) == [3, 0, 2, 1]


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


# ---- LeCaR ----


def weight(cache: Letters) -> float:
    return cache.policy.snapshot()[2][0]


def test_lecar():
    # Four ghosts for each expert. The draws of seed 0 begin .88, .43, .03.
    cache = Letters("lecar", 3, {"ghost_ratio": 3})
    cache.play("ABC")
    assert cache.play("AABC") == ["hit"] * 4  # uses A 3, B 2, C 2; last used C
    # LRU would evict A, LFU B. At equal weights .88 is for LFU.
    assert cache.play("D") == ["B"]  # A 3, C 2, D 1
    assert cache.policy.num_ghosts == 1 and weight(cache) == 0.5
    # B was asked for one access after it had gone, of three that leave 0.5 %.
    # LFU regrets: LRU's weight grows by exp(.45 x .005^(1/3)).
    assert cache.play("B") == ["A"]  # .43 is for LRU: A goes; B has 3 uses again
    gain = math.exp(0.45 * 0.005 ** (1 / 3))
    assert weight(cache) == pytest.approx(gain / (gain + 1))
    # LRU would evict C, LFU D.
    assert cache.play("E") == ["C"]
    # A's eviction was LRU's, two accesses ago.
    cache.play("A")
    loss = math.exp(0.45 * 0.005 ** (2 / 3))
    assert weight(cache) == pytest.approx(gain / (gain + loss))


def test_lecar_remembers_nothing_while_the_experts_agree():
    cache = Letters("lecar", 3)
    cache.play("ABCDEFG")
    assert cache.policy.num_ghosts == 0


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
