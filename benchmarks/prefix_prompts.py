# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What `benchmark_prefix_caching.py` asks an engine: token ids, and when.

Three sources: drawn lengths with a common prefix, a file of conversations, and a
workload, which is a preset of the lab's generator or a trace in any format it reads.

Prompts of a workload are made from the names of its blocks: equal blocks get equal
tokens, wherever they are and in every run, and no others share one. What a trace does
not name is nobody's: the tail after the last full block, and the answers, which the
next prompt of a session repeats with other tokens than the model says. An engine
computes both anew.
"""

import json
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.generate import requests_of
from vllm.benchmarks.eviction.generate_args import parse_traffic
from vllm.benchmarks.eviction.sessions import to_trace
from vllm.benchmarks.eviction.trace import Trace
from vllm.benchmarks.eviction.trace_load import Reading, load_trace
from vllm.benchmarks.eviction.workloads import PRESETS, preset_named
from vllm.v1.core.eviction.registry import nearest

_TAILS = np.uint64(1) << np.uint64(63)  # a tail's name is its request's number


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        due: Seconds from the start.
        tokens: int32 (prompt,).
        output: Tokens to generate.

    """

    due: float
    tokens: NDArray[np.int32]
    output: int


def load_workload(
    name: str, traffic: list[str], seconds: float | None
) -> tuple[Trace, str]:
    """A trace from a preset or a file.

    Args:
        name: A preset's, or a file.
        traffic: Options of `vllm bench eviction generate` as name=value, for a preset.
        seconds: What comes later is left out.

    Returns:
        The trace, and what it is in a few words.

    Raises:
        ValueError: One line.

    """
    if Path(name).is_file():
        if traffic:
            raise ValueError(
                f"--traffic is for presets, but --workload {name} is a file."
            )
        loaded = load_trace(name, Reading(seconds=seconds))
        return loaded.trace, f"{Path(name).name} ({loaded.format})"
    if name not in PRESETS:
        raise ValueError(
            f"--workload {name!r}: neither a file nor a preset, of which there are "
            f"{', '.join(PRESETS)}.{nearest(name, list(PRESETS))}"
        )
    words = []
    for word in traffic:
        option, equals, value = word.partition("=")
        if not equals or option.startswith("-"):
            raise ValueError(
                f"--traffic has {word!r}: must be name=value, such as shares=0,100,0."
            )
        words.append(f"--{option}={value}")
    args = parse_traffic(["--preset", name, *words])
    if seconds is not None and args.seconds is None and args.concurrency is None:
        args.seconds = seconds
    workload, requests, _ = requests_of(args)
    if seconds is not None:
        requests = takewhile(lambda each: each.arrival <= seconds, requests)
    trace = to_trace(requests, workload.block_size)
    if not len(trace):
        raise ValueError(f"--workload {name}: no request in so little traffic.")
    return trace, " ".join([name, f"({preset_named(name).summary})", *traffic])


def asks_of_trace(
    trace: Trace, vocabulary: int, speed_up: float, output_len: int | None = None
) -> list[Ask]:
    """The requests of a trace.

    Args:
        trace: Whose blocks have names.
        vocabulary: Token ids of the model.
        speed_up: Times of arrival are divided by it.
        output_len: At most so many tokens are generated.

    """
    asks = []
    size = trace.block_size
    place = np.arange(size, dtype=np.uint64)
    for i, blocks in enumerate(trace.prompt_blocks.tolist()):
        first = int(trace.offsets[i])
        keys = trace.keys[first : first + blocks]
        length = int(trace.prompt_tokens[i])
        tokens = np.empty(length, dtype=np.int32)
        full = blocks * size
        tokens[:full] = _tokens(keys[:, None], place[None, :], vocabulary).ravel()
        tail = np.arange(length - full, dtype=np.uint64)
        tokens[full:] = _tokens(np.array([_TAILS + np.uint64(i)]), tail, vocabulary)
        output = max(1, int(trace.output_tokens[i]))
        asks.append(
            Ask(
                float(trace.arrivals[i]) / speed_up,
                tokens,
                output if output_len is None else min(output, output_len),
            )
        )
    return [ask for ask in asks if len(ask.tokens)]


def as_asked(trace: Trace, output_len: int | None = None) -> Trace:
    """The trace that an engine sees which is asked for `asks_of_trace`.

    Blocks of answers have names that no prompt has, and fewer tokens may be generated.

    Args:
        trace: Whose blocks have names.
        output_len: At most so many tokens are generated.

    """
    output = np.maximum(trace.output_tokens, 1)
    if output_len is not None:
        output = np.minimum(output, output_len)
    size = trace.block_size
    prompts = trace.prompt_blocks.astype(np.int64)
    ends = trace.prompt_tokens.astype(np.int64) + output.astype(np.int64)
    counts = np.maximum(prompts, (ends - 1) // size)
    keys = []
    for i, (known, count) in enumerate(zip(prompts, counts, strict=True)):
        first = int(trace.offsets[i])
        answer = _TAILS + np.uint64(i << 24) + np.arange(count - known, dtype=np.uint64)
        keys += [trace.keys[first : first + known], answer]
    return replace(
        trace,
        output_tokens=output.astype(np.uint32),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
        keys=np.concatenate(keys),
    )


def _tokens(names: Any, places: Any, vocabulary: int) -> Any:
    """Token ids that a name and a place always get; special tokens are left out."""
    with np.errstate(over="ignore"):
        mixed = names * np.uint64(0x9E3779B97F4A7C15) + places
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    low = min(1000, vocabulary // 2)
    return (np.uint64(low) + mixed % np.uint64(vocabulary - low)).astype(np.int32)


@dataclass(frozen=True)
class Batch:
    """Prompts that are all there at the start, as for `LLM.generate`.

    Attributes:
        num_prompts: Different ones.
        repeat_count: How often each is asked.
        lengths: Of the prompts, least and most; tokens.
        prefix_len: Tokens with which every prompt begins; within its length.
        output_len: Tokens to generate.
        sort: By length; else shuffled.
        seed: Of lengths, tokens and order.

    """

    num_prompts: int
    repeat_count: int
    lengths: tuple[int, int]
    prefix_len: int
    output_len: int
    sort: bool
    seed: int

    def drawn(self, vocabulary: int) -> list[Ask]:
        """Prompts of random tokens."""
        rng = np.random.default_rng(self.seed)
        low = min(1000, vocabulary // 2)
        prefix = rng.integers(low, vocabulary, self.prefix_len, dtype=np.int32)
        prompts = []
        for length in rng.integers(*self.lengths, self.num_prompts, endpoint=True):
            own = rng.integers(low, vocabulary, length - len(prefix), dtype=np.int32)
            prompts.append(np.concatenate([prefix, own]))
        return self._repeated(prompts, rng)

    def read(self, path: Path, tokenizer: Any) -> list[Ask]:
        """Prompts of a file of conversations, in the form of ShareGPT.

        Args:
            path: A JSON list of objects with `conversations`, whose first `value` is
                the prompt.
            tokenizer: The model's.

        Raises:
            ValueError: It has not that form, or not so many prompts of such lengths.

        """
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
            texts = [
                e["conversations"][0]["value"] for e in entries if e["conversations"]
            ]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a value is no text")
        except OSError as error:
            raise ValueError(f"--dataset-path {path}: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"--dataset-path {path}: must be a JSON list of objects with "
                f"conversations, each with a value ({type(error).__name__}: {error})."
            ) from None
        rng = np.random.default_rng(self.seed)
        low = min(1000, len(tokenizer) // 2)
        prefix = rng.integers(low, len(tokenizer), self.prefix_len, dtype=np.int32)
        prompts = []
        for i in rng.permutation(len(texts)):
            own = np.array(tokenizer.encode(texts[i]), dtype=np.int32)
            if self.lengths[0] <= len(prefix) + len(own) <= self.lengths[1]:
                prompts.append(np.concatenate([prefix, own]))
            if len(prompts) == self.num_prompts:
                return self._repeated(prompts, rng)
        raise ValueError(
            f"--dataset-path {path}: {len(prompts)} of {len(texts)} prompts have "
            f"{self.lengths[0]} to {self.lengths[1]} tokens with the prefix, "
            f"--num-prompts is {self.num_prompts}."
        )

    def _repeated(
        self, prompts: list[NDArray[np.int32]], rng: np.random.Generator
    ) -> list[Ask]:
        asks = [Ask(0.0, tokens, self.output_len) for tokens in prompts]
        asks *= self.repeat_count
        if self.sort:
            return sorted(asks, key=lambda ask: len(ask.tokens))
        return [asks[i] for i in rng.permutation(len(asks))]
