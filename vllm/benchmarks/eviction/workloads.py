# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Named workloads, mixes and drifts. The mix decides which policy is right.

The traffic itself is drawn in `sessions.py`; its parameters are in `workload.py`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm.benchmarks.eviction.workload import Mix, Preset, Schedule, Workload
from vllm.v1.core.eviction.registry import nearest

if TYPE_CHECKING:
    from vllm.benchmarks.eviction.trace import Trace

__all__ = [
    "DRIFTS",
    "DRIFT_SECONDS",
    "EVEN",
    "MIXES",
    "P0",
    "P1",
    "P2",
    "PRESETS",
    "PRODUCTION",
    "Mix",
    "Preset",
    "Workload",
    "constant",
    "drift",
    "generate",
    "preset_named",
]

EVEN = Mix(33.3, 33.3, 33.4)

P1 = Preset(
    Workload(
        services=60,
        service_zipf=0.6,
        single_input=1482,
        chat_turns=6,
        chat_prompt=500,
        chat_first_input=864,
        chat_input=432,
        chat_output=150,
        chat_gap_sigma=0.3,
        agent_steps=5,
        agent_apps=4,
        agent_prompt=1000,
        agent_first_input=2042,
        agent_gap_sigma=1.0,
    ),
    num_blocks=13_653,
    promotion=2,
    summary="fitted to the shape of the table in the WAKMan paper",
)

P2 = Preset(
    Workload(
        rate=1.36,
        services=12,
        service_zipf=1.77,
        service_prompt=201,
        single_input=2990,
        single_input_sigma=0.194,
        single_output=238,
        chat_turns=9.83,
        chat_prompts=2,
        chat_prompt=380,
        chat_first_input=2170,
        chat_input=108,
        chat_input_sigma=0.863,
        chat_output=139,
        chat_gap_sigma=0.0217,
        agent_steps=2,
        agent_apps=2,
        agent_prompt=119,
        agent_first_input=1580,
        agent_input=349,
        agent_input_sigma=0.221,
        agent_output=161,
        agent_gap_sigma=1.5,
    ),
    num_blocks=15_368,
    promotion=2,
    summary="like P1, but S3-FIFO wins 8 turns by more than in the WAKMan paper",
)
"""By a random search from P1: S3-FIFO's lead on the even mix with chats of 8 turns,
while LRU keeps 8 points on agents and S3-FIFO as many on chats. Less natural than P1:
all gaps of chats are alike, and an agent has two steps."""

P0 = Preset(
    Workload(),
    num_blocks=6_000,
    promotion=1,
    summary="a first guess, not fitted: the control",
)

PRODUCTION = Preset(
    Workload(
        rate=0.82,
        max_tokens=262_144,
        max_turns=412,
        services=1900,
        service_zipf=0.88,
        service_prompt=616,
        service_prompt_sigma=1.87,
        service_prompt_max=100_000,
        single_input=205,
        single_input_sigma=0.08,
        chat_turns=9.9,
        chat_turns_sigma=1.5,
        chat_prompts=50,
        chat_prompt=1000,
        chat_first_input=1209,
        chat_input=200,
        chat_input_sigma=1.2,
        chat_output=400,
        chat_gap=68,
        chat_gap_sigma=1.5,
        agent_steps=18.3,
        agent_steps_sigma=3.23,
        agent_apps=780,
        agent_prompt=17_750,
        agent_first_input=3152,
        agent_first_input_sigma=2.93,
        agent_input=454,
        agent_input_sigma=1.33,
        agent_output=200,
        agent_gap=0.91,
        agent_gap_sigma=0.9,
    ),
    num_blocks=32_768,
    promotion=1,
    mix=Mix(50, 5.4, 44.6),
    summary="a twin, by its statistics, of the trace in When Fancy Eviction Fails",
)
"""Fitted by a random search to what that paper says of FreeInference Trace: lengths,
gaps, sessions, and how blocks and accesses divide (its section 4); not to any hit rate.
The pool is its 48 GiB."""

PRESETS = {
    "P1": P1,
    "P2": P2,
    "P0": P0,
    "half": replace(P1, num_blocks=P1.num_blocks // 2, summary="P1 on half the pool"),
    "production": PRODUCTION,
}


def preset_named(name: str) -> Preset:
    """A preset.

    Raises:
        ValueError: There is none of that name; one line.

    """
    if name not in PRESETS:
        names = list(PRESETS)
        raise ValueError(
            f"Unknown preset {name!r}: choose from {', '.join(names)}."
            f"{nearest(name, names)}"
        )
    return PRESETS[name]


MIXES = [
    Mix(*shares)
    for shares in (
        (100, 0, 0),
        (0, 100, 0),
        (0, 0, 100),
        (50, 50, 0),
        (50, 0, 50),
        (0, 50, 50),
        (33.3, 33.3, 33.4),
        (80, 10, 10),
        (10, 80, 10),
        (10, 10, 80),
        (60, 20, 20),
        (20, 60, 20),
        (20, 20, 60),
        (75, 25, 0),
        (75, 0, 25),
        (25, 75, 0),
        (0, 75, 25),
        (25, 0, 75),
        (0, 25, 75),
        (40, 40, 20),
    )
]

LETTERS = {
    "A": Mix(0, 0, 100),
    "M": Mix(0, 100, 0),
    "S": Mix(100, 0, 0),
    "E": EVEN,
    "a": Mix(0, 30, 70),
    "s": Mix(80, 15, 5),
}
"""What a letter of a drift means."""
DRIFTS = ("AMAMAM", "MAMAMA", "ASMASM", "ASASAS", "asas", "EASEMA")
"""Patterns of drift: a letter is a mix that lasts `DRIFT_SECONDS`."""
DRIFT_SECONDS = 1200.0


def constant(mix: Mix, seconds: float = 3600.0) -> Schedule:
    """The schedule of one mix throughout."""
    return [(seconds, mix)]


def drift(pattern: str, seconds: float = DRIFT_SECONDS) -> Schedule:
    """The schedule of a pattern, of `DRIFTS` or another of the same letters.

    Args:
        pattern: Letters of `LETTERS`.
        seconds: Of each.

    Raises:
        ValueError: A letter means nothing; one line.

    """
    for letter in pattern:
        if letter not in LETTERS:
            raise ValueError(
                f"The drift {pattern!r} has {letter!r}: its letters must be of "
                f"{', '.join(LETTERS)}."
            )
    return [(seconds, LETTERS[letter]) for letter in pattern]


def generate(workload: Workload, schedule: Schedule, seed: int = 1) -> "Trace":
    """Draw a trace; see `sessions.stream`, which needs no memory for it.

    Args:
        workload: Parameters.
        schedule: How long (seconds) each mix lasts.
        seed: Same seed, same trace.

    """
    from vllm.benchmarks.eviction.sessions import stream, to_trace

    return to_trace(stream(workload, schedule, seed), workload.block_size)
