# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The public formats of traces, told apart by the fields of the first line.

All are JSON, an object a line, and all name blocks by ids where equal ids are equal
prefixes; they differ in the names of the fields, the unit of time and the tokens of
an id. A format here turns one object into requests, and knows nothing of files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.trace_files import ids_of, lengths_of

_SESSION_IDS = np.uint64(1) << np.uint64(32)  # ids that one session can have


class Request(NamedTuple):
    """One request of a line.

    Attributes:
        arrival: Seconds; from the session's start where `Format.sessions`.
        prompt: Tokens.
        output: Tokens.
        session: What tells sessions apart; None when nothing does.
        ids: Of the prompt's blocks.
        tokens_per_id: Tokens that an id stands for; None where only longer prompts
            of the file tell.
        parent: Where requests have names instead of sessions, the one before it.

    """

    arrival: float
    prompt: int
    output: int
    session: str | int | None
    ids: NDArray[np.uint64]
    tokens_per_id: int | None
    parent: str | int | None = None


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        name: As given to `--format`.
        needs: Fields that an object must have to be of the format; `a.b` is `b`
            within `a`.
        summary: What has it; one clause.
        requests: The requests of an object. Its second argument is the line's
            number.
        in_order: Lines are in order of arrival, so time that goes backwards is a
            fault.
        sessions: A line is a whole session, whose start is not recorded.

    """

    name: str
    needs: tuple[str, ...]
    summary: str
    requests: Callable[[dict[str, Any], int], Iterator[Request]]
    in_order: bool
    sessions: bool = False

    def matches(self, line: Any) -> bool:
        """Whether an object has the fields."""
        return all(_has(line, need) for need in self.needs)


def _has(line: Any, need: str) -> bool:
    for name in need.split("."):
        if not isinstance(line, dict) or name not in line:
            return False
        line = line[name]
    return True


def _recording(line: dict[str, Any], _number: int) -> Iterator[Request]:
    size = int(line["block_size"])
    lengths = lengths_of(line["input_length"], line["output_length"])
    session = line.get("session")  # what the engine writes has none
    yield Request(float(line["timestamp"]), *lengths, session, ids_of(line), size)


def _bailian(line: dict[str, Any], _number: int) -> Iterator[Request]:
    lengths = lengths_of(line["input_length"], line["output_length"])
    yield Request(
        float(line["timestamp"]),
        *lengths,
        line["chat_id"],
        ids_of(line),
        16,
        # -1 in the first turn.
        parent=line.get("parent_chat_id"),
    )


def _mooncake(line: dict[str, Any], _number: int) -> Iterator[Request]:
    lengths = lengths_of(line["input_length"], line["output_length"])
    ids = ids_of(line)
    # The files of 512 and those of 16 tokens have the same fields. The last id is
    # of a partial block, so that only one of the two fits a prompt of two ids, and
    # both fit one of 16 tokens.
    size: int | None = 16 if len(ids) > -(-lengths[0] // 512) else 512
    if lengths[0] <= 16:
        size = None
    yield Request(
        float(line["timestamp"]) / 1000, *lengths, line.get("session"), ids, size
    )


def _dynamo(line: dict[str, Any], _number: int) -> Iterator[Request]:
    event = line["event"]
    if event["event_type"] != "request_end":
        return  # a tool's start, end or error
    request = event["request"]
    replay = request["replay"]
    hashes = np.array(replay["input_sequence_hashes"], dtype=np.uint64)
    yield Request(
        float(request["request_received_ms"]) / 1000,
        *lengths_of(replay["input_length"], request["output_tokens"]),
        (event.get("agent_context") or {}).get("session_id"),
        # As many bits as a recording's, which leaves room for the parts of a block.
        hashes >> np.uint64(11),
        int(replay["trace_block_size"]),
    )


def _weka(line: dict[str, Any], number: int) -> Iterator[Request]:
    size = int(line["block_size"])
    local = line.get("hash_id_scope", "local") == "local"
    base = np.uint64(number) * _SESSION_IDS if local else np.uint64(0)
    yield from _weka_turns(line["requests"], 0.0, number, base, size)


def _weka_turns(
    turns: list[dict[str, Any]], start: float, session: int, base: np.uint64, size: int
) -> Iterator[Request]:
    for turn in turns:
        at = start + float(turn["t"])
        if turn.get("type") == "subagent":
            yield from _weka_turns(turn["requests"], at, session, base, size)
            continue
        prompt, output = lengths_of(turn["in"], turn["out"])
        ids = ids_of(turn)
        # Only full blocks have ids; the tokens after them are nobody's, and left out.
        prompt = min(prompt, len(ids) * size)
        yield Request(at, prompt, output, session, ids + base, size)


FORMATS = (
    Format(
        "recording",
        ("timestamp", "input_length", "output_length", "hash_ids", "block_size"),
        "what --eviction-trace-file writes",
        _recording,
        in_order=False,  # in order of admission
    ),
    Format(
        "bailian",
        ("chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
        "Qwen-Bailian's traces: 16-token ids, seconds",
        _bailian,
        in_order=True,
    ),
    Format(
        "mooncake",
        ("timestamp", "input_length", "output_length", "hash_ids"),
        "Mooncake's traces: 512-token ids, milliseconds",
        _mooncake,
        in_order=True,
    ),
    Format(
        "mooncake-runs",
        ("timestamp", "input_length", "output_length", "hash_runs"),
        "the same with runs of ids",
        _mooncake,
        in_order=True,
    ),
    Format(
        "weka",
        ("requests", "block_size"),
        "weka's and AgentX's: a session a line, whose start is drawn",
        _weka,
        in_order=False,
        sessions=True,
    ),
    Format(
        "dynamo",
        ("event.request.replay",),
        "Dynamo's request traces",
        _dynamo,
        in_order=False,  # in order of their ends
    ),
)
