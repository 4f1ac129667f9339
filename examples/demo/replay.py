# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Requests over HTTP: each one to every server, one at a time, in the trace's order.

All servers run at the same time, and a request goes to one after the other before the
next request goes to any. So whatever else slows the machine down slows them alike, and
times can be compared request by request; with one run after the other they cannot (on
a busy machine the same hits took twice as long in the second run). Who is first
changes with each request.

One at a time, as fast as the servers answer: on two cores a second request in flight
would only wait for the first, and the time to first token would measure the queue. It
also makes the hits the same in every run.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from server import MODEL_NAME
from traffic import Prompt

REQUEST_TIMEOUT_S = 120


@dataclass(frozen=True)
class Answer:
    """What one request cost.

    Attributes:
        ttft: Seconds to the first token.
        prompt_tokens: As the server counts them.
        cached_tokens: Of these, found in the prefix cache.
    """

    ttft: float
    prompt_tokens: int
    cached_tokens: int


async def ask(session: aiohttp.ClientSession, url: str, tokens: list[int]) -> Answer:
    """Sends one prompt and waits for its only token.

    Args:
        session: Of aiohttp.
        url: Of the server.
        tokens: The prompt.

    Raises:
        aiohttp.ClientError: The server refused or went away.
    """
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "prompt": tokens,
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    ttft, usage = None, None
    start = time.perf_counter()
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data:") or b"[DONE]" in line:
                continue
            if ttft is None:
                ttft = time.perf_counter() - start
            usage = json.loads(line[5:]).get("usage") or usage
    if ttft is None or usage is None:
        raise aiohttp.ClientError("the server sent no token")
    details = usage.get("prompt_tokens_details") or {}
    return Answer(ttft, usage["prompt_tokens"], details.get("cached_tokens") or 0)


async def replay(
    urls: dict[str, str],
    prompts: list[Prompt],
    load: str,
    vocabulary: int,
    budget: float,
    progress: Callable[[dict[str, list[Answer]], float], None],
) -> dict[str, list[Answer]]:
    """Replays prompts on all servers until prompts or time are used up.

    Args:
        urls: Of the servers, by name.
        prompts: In order.
        load: Name of the load they belong to.
        vocabulary: Token ids that the model knows.
        budget: Seconds after which no further request is sent.
        progress: Told the answers and the seconds so far.

    Returns:
        For each server an answer to each request that was sent.

    Raises:
        aiohttp.ClientError: A server refused or went away.
        TimeoutError: A request took longer than ``REQUEST_TIMEOUT_S``.
    """
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    answers: dict[str, list[Answer]] = {name: [] for name in urls}
    start = time.monotonic()
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for serial, prompt in enumerate(prompts):
            seconds = time.monotonic() - start
            if seconds > budget:
                break
            tokens = prompt.token_ids(load, serial, vocabulary)
            for name in sorted(urls, reverse=bool(serial % 2)):
                answers[name].append(await ask(session, urls[name], tokens))
            progress(answers, time.monotonic() - start)
    return answers
