# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A stand-in where the real trace is not at hand, in the same format.

An hour of two kinds of users: chats, whose every turn repeats all that was said
before, and single questions to services, which share a system prompt each. The sizes
are of the order of the Mooncake conversation trace. It shows that the demonstration
works; it says nothing about anybody's traffic, and the table says that it was used.
"""

import heapq
import itertools
import random
from collections.abc import Iterator
from typing import Any

from traffic import TRACE_BLOCK

SECONDS = 3600
SESSIONS_PER_SECOND = 2.0
SHARE_OF_CHATS = 0.5
MEAN_TURNS = 4
SERVICES = 60


def generate(seed: int = 0) -> Iterator[dict[str, Any]]:
    """Requests in order of arrival, as ``traffic.read_trace`` gives them.

    Args:
        seed: Of everything drawn.
    """
    draw = random.Random(seed)
    fresh = itertools.count(1)
    services = [
        [0, *itertools.islice(fresh, draw.randint(4, 16))] for _ in range(SERVICES)
    ]
    popularity = [1 / rank for rank in range(1, SERVICES + 1)]

    def grow(ids: list[int], tokens: float) -> list[int]:
        return ids + list(itertools.islice(fresh, max(1, round(tokens / TRACE_BLOCK))))

    # A heap of what comes next: (time in s, tie-breaker, ids so far, is it a chat).
    coming: list[tuple[float, int, list[int], bool]] = []
    arrival = 0.0
    serial = itertools.count()
    while arrival < SECONDS or coming:
        if arrival < SECONDS and (not coming or arrival <= coming[0][0]):
            chat = draw.random() < SHARE_OF_CHATS
            if chat:
                ids = grow([0], draw.lognormvariate(8.3, 1.0))
            else:
                service = draw.choices(services, popularity)[0]
                ids = grow(service, draw.lognormvariate(8.0, 0.8))
            heapq.heappush(coming, (arrival, next(serial), ids, chat))
            arrival += draw.expovariate(SESSIONS_PER_SECOND)
            continue
        time, _, ids, chat = heapq.heappop(coming)
        if time >= SECONDS:
            continue
        yield {
            "timestamp": int(time * 1000),
            "input_length": len(ids) * TRACE_BLOCK - draw.randrange(TRACE_BLOCK),
            "hash_ids": ids,
        }
        if chat and draw.random() > 1 / MEAN_TURNS:
            later = time + draw.lognormvariate(4.1, 0.5)
            longer = grow(ids, draw.lognormvariate(7.0, 1.0))
            heapq.heappush(coming, (later, next(serial), longer, chat))
