# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Seeded prompts that make a small prefix cache work hard.

Shared prefixes of unequal popularity come back after floods of prompts that are
seen once, and conversations grow by what was answered. So blocks are hit while
they are free and while they are in use, prompts and outputs are reused, and it
matters which block goes: policies hit differently, and answers must not differ.
"""

import random
from dataclasses import dataclass

Prompt = list[int]


@dataclass(frozen=True)
class Scale:
    """Lengths in tokens, fit for one model and pool.

    Attributes:
        prefix: Of a shared prefix.
        suffix: Shortest and longest of what follows it.
        flood: Shortest and longest prompt that is seen once.

    """

    prefix: int
    suffix: tuple[int, int]
    flood: tuple[int, int]


class Traffic:
    """Draws batches of prompts.

    Args:
        scale: Lengths.
        seed: Of everything.

    """

    FAMILIES = 8
    CHATS = 3

    def __init__(self, scale: Scale, seed: int = 0):
        self._scale = scale
        self._random = random.Random(seed)
        self.prefixes = [self._tokens(scale.prefix) for _ in range(self.FAMILIES)]
        self._chats = [self._tokens(scale.prefix) for _ in range(self.CHATS)]
        self._turn = 0

    def batch(self) -> list[Prompt]:
        """Prompts to be served together; the last one is the turn of a chat."""
        # Family k is asked for in proportion to 1 / (k + 1).
        popularity = [1 / (k + 1) for k in range(self.FAMILIES)]
        shared = self._random.choices(self.prefixes, popularity, k=4)
        prompts = [prefix + self._tokens(*self._scale.suffix) for prefix in shared]
        prompts += [self._tokens(*self._scale.flood) for _ in range(3)]
        self._random.shuffle(prompts)
        chat = self._turn % self.CHATS
        return [*prompts, self._chats[chat] + self._tokens(*self._scale.suffix)]

    def answered(self, prompt: Prompt, answer: list[int], longest: int) -> None:
        """Let the chat of the last batch go on from its answer.

        Args:
            prompt: The last of the batch.
            answer: What came out.
            longest: A chat that is longer, in tokens, starts anew.

        """
        history = prompt + answer
        if len(history) > longest:
            history = self._tokens(self._scale.prefix)
        self._chats[self._turn % self.CHATS] = history
        self._turn += 1

    def _tokens(self, shortest: int, longest: int | None = None) -> Prompt:
        length = self._random.randint(shortest, longest or shortest)
        return [self._random.randrange(256) for _ in range(length)]
