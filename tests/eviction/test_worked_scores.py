# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies that count, rank or learn on a handful of accesses, worked out by hand.

To be read beside the paper. Lists are written with the next to go first.
"""

import math
from typing import Any

import pytest
from vllm._eviction_C import make_policy

from tests.eviction.letters import Letters

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
    # Hit at age 0 before, class 9: eight hits at age 0, one at 1, evicted at 12.
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
