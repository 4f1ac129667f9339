# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Two kinds of traffic that want different policies, as token ids over HTTP.

The sizes go with a pool of about 200 blocks of 32 tokens and requests of at most
1,024 tokens. Each kind is deterministic but for the timing.
"""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import requests

Send = Callable[[list[int], int], list[int]]
"""Prompt and number of output tokens in, output tokens out."""


def sender(url: str, model: str) -> Send:
    """Completions of token ids, by the server at `url`."""
    local = threading.local()

    def send(prompt: list[int], output: int) -> list[int]:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        answer = local.session.post(
            f"{url}/v1/completions",
            json={
                "model": model,
                "prompt": prompt,
                "max_tokens": output,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            },
            timeout=120,
        )
        answer.raise_for_status()
        return answer.json()["choices"][0]["token_ids"]

    return send


def agentic(send: Send, seed: int, stopped: Callable[[], bool]) -> int:
    """Agents that take many steps: each prompt is all that was said before, and a
    tool's answer. What was used last is used next: LRU keeps it.

    Returns:
        Requests that were sent.

    """
    generator = random.Random(seed)
    sent = 0
    while not stopped():
        prompt = _tokens(generator, 160)
        while len(prompt) < 900 and not stopped():
            prompt = prompt + send(prompt, 8) + _tokens(generator, 56)
            sent += 1
    return sent


def flood(send: Send, seed: int, stopped: Callable[[], bool]) -> int:
    """Single turns to a dozen services, drawn at random: a system prompt that all
    turns to a service share, and a long payload that is never seen again. Payloads
    push half of the system prompts out of an LRU cache before they are wanted.

    Returns:
        Requests that were sent.

    """
    generator = random.Random(seed)
    sent = 0
    while not stopped():
        system = random.Random(generator.randrange(12))
        send(_tokens(system, 256) + _tokens(generator, 544), 1)
        sent += 1
    return sent


def drive(
    kind: Callable[[Send, int, Callable[[], bool]], int],
    send: Send,
    stopped: Callable[[], bool],
    clients: int = 3,
    seed: int = 0,
) -> int:
    """Let some clients send one kind of traffic.

    Args:
        kind: `agentic` or `flood`.
        send: See `sender`.
        stopped: Asked before each request.
        clients: At a time.
        seed: Of the prompts.

    Returns:
        Requests that were sent.

    """
    with ThreadPoolExecutor(clients) as pool:
        counts = pool.map(
            lambda client: kind(send, seed * 1000 + client, stopped), range(clients)
        )
        return sum(counts)


def after(seconds: float) -> Callable[[], bool]:
    """A `stopped` that is true from then on."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _tokens(generator: random.Random, count: int) -> list[int]:
    return [generator.randrange(256) for _ in range(count)]
