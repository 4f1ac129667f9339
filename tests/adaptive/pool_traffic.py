# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Random requests for pools that must do the same, one of which may be naive."""

from typing import Any

from tests.adaptive.request_events import CONVERSATIONS, LONGEST, Event, block_keys


class Traffic:
    """Sends the same requests to pools.

    Args:
        pools: With one set of groups.
        num_groups: Of them.

    Attributes:
        holes: That the requests found.

    """

    def __init__(self, *pools: Any, num_groups: int = 1):
        self.pools = pools
        self.num_groups = num_groups
        self.running: dict[int, list[int]] = {}  # serial -> conversation, blocks
        self.holes = 0
        self._serial = 0

    def keys(self, conversation: int, length: int) -> list[int]:
        groups = range(self.num_groups)
        return [
            key for group in groups for key in block_keys(conversation, length, group)
        ]

    def step(self, event: Event) -> None:
        getattr(self, event.kind)(event)

    def admit(self, event: Event) -> None:
        conversation = event.which % CONVERSATIONS
        keys = self.keys(conversation, event.length)
        # A prompt of whole blocks: the last one is computed again, and copied.
        limit = event.length - event.extra % 2
        self._serial += 1
        arguments = (self._serial, keys, limit, event.length + event.extra % 3, 0.0)
        hits = {pool.lookup(keys, limit) for pool in self.pools}
        outcomes = {pool.admit(*arguments) for pool in self.pools}
        assert len(outcomes) == 1, f"outcomes differ: {outcomes}"
        ((found, fits, holes, *_),) = outcomes
        assert hits == {found}
        self.holes += holes
        if fits:
            self.running[self._serial] = [conversation, event.length]

    def grow(self, event: Event) -> None:
        if not self.running:
            return
        serial = list(self.running)[event.which % len(self.running)]
        request = self.running[serial]
        request[1] = min(request[1] + event.length // 3, LONGEST)
        keys = self.keys(*request) if event.extra % 2 else []
        for pool in self.pools:
            pool.grow(serial, request[1] + event.extra % 3, keys)

    def finish(self, event: Event) -> None:
        if not self.running:
            return
        serial = list(self.running)[event.which % len(self.running)]
        conversation, length = self.running.pop(serial)
        # Of a request that is aborted, less may be full.
        length -= event.extra % 4 == 3
        for pool in self.pools:
            pool.finish(serial, self.keys(conversation, length), 0.0)

    def reset(self, event: Event) -> None:
        for pool in self.pools:
            pool.reset()

    def all_keys(self) -> list[list[int]]:
        """Of each block a list with its key in each group."""
        places = {
            tuple(self.keys(conversation, LONGEST)[place::LONGEST])
            for conversation in range(CONVERSATIONS)
            for place in range(LONGEST)
        }
        return [list(keys) for keys in places]


def check_agreement(traffic: Traffic, events: list[Event]) -> None:
    """Send requests to a pool and its naive twin; both hold the same after each."""
    pool, naive = traffic.pools
    for event in events:
        traffic.step(event)
        assert pool.num_free == naive.num_free
        pool.check()
        for keys in traffic.all_keys():
            assert pool.lookup(keys, 1) == all(naive.resident(key) for key in keys)
