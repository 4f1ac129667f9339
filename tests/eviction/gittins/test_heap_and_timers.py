# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Who goes next, and who grows older next, against lists that are sorted anew."""

from hypothesis import given
from hypothesis import strategies as st
from vllm._eviction_C import gittins

CAPACITY = 12
ids = st.integers(0, CAPACITY - 1)


@given(
    changes=st.lists(
        st.tuples(
            ids,
            st.one_of(
                st.none(),
                st.tuples(st.booleans(), st.sampled_from([-1.0, 0.25, 0.5])),
            ),
        )
    )
)
def test_the_top_is_the_least_of_all(changes):
    """Unblocked before blocked, then by index, then the older."""
    heap = gittins.EvictionHeap(CAPACITY)
    ranks: dict[int, tuple[bool, float, int]] = {}
    for ticket, (id_, change) in enumerate(changes):
        if change is None:
            heap.remove(id_)
            ranks.pop(id_, None)
        else:
            ranks[id_] = (*change, ticket)
            heap.set(id_, *ranks[id_])
        heap.check()
        assert len(heap) == len(ranks)
        assert heap.top() == min(ranks, key=ranks.__getitem__, default=None)


@given(events=st.lists(st.tuples(ids, st.integers(0, 4))))
def test_those_who_wait_for_an_edge_come_in_order(events):
    """Edge 0 stands for leaving."""
    timers = gittins.AgeTimers(CAPACITY)
    waiting: dict[int, list[int]] = {edge: [] for edge in range(1, 5)}
    for id_, edge in events:
        timers.stop(id_)
        for queue in waiting.values():
            if id_ in queue:
                queue.remove(id_)
        if edge > 0:
            timers.start(id_, edge)
            waiting[edge].append(id_)
        for at, queue in waiting.items():
            assert timers.first(at) == (queue[0] if queue else None)
