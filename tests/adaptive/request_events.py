# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random requests over few prefixes, so that blocks are hit, copied and missed.

A conversation is a number, and its blocks are numbered from its start; some
conversations begin alike. Drawn as bytes, which is faster than drawing each event.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

CONVERSATIONS = 6
LONGEST = 7  # blocks
_KINDS = ("admit",) * 6 + ("finish",) * 5 + ("grow",) * 3 + ("reset",)


@dataclass(frozen=True)
class Event:
    """One thing that happens.

    Attributes:
        kind: admit, grow, finish or reset.
        which: A conversation to admit, or an index into the running requests.
        length: Blocks of the prompt, or that were added to it.
        extra: 0 or more; what the test makes of it.

    """

    kind: str
    which: int
    length: int
    extra: int


def block_keys(conversation: int, length: int, group: int = 0) -> list[int]:
    """A key for each block; conversations 0, 1 and 2, 3, 4 begin with two alike."""
    family = (0, 0, 1, 1, 1, 2)[conversation % CONVERSATIONS]
    keys = []
    for place in range(length):
        owner = family if place < 2 else CONVERSATIONS + conversation
        keys.append(1 + place + 100 * owner + 10_000 * group)
    return keys


def event_lists(max_size: int = 60) -> st.SearchStrategy[list[Event]]:
    """Lists of all lengths alike."""
    return (
        st.integers(0, max_size)
        .flatmap(lambda size: st.binary(min_size=3 * size, max_size=3 * size))
        .map(lambda data: list(_decode(data)))
    )


def _decode(data: bytes) -> Iterator[Event]:
    for at in range(0, len(data), 3):
        kind, which, rest = data[at : at + 3]
        yield Event(
            # A reset is rare: it empties everything.
            "reset" if kind >= 250 else _KINDS[kind % (len(_KINDS) - 1)],
            which,
            rest % LONGEST + 1,
            rest // LONGEST,
        )
