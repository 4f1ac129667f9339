# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What prefill costs on a device, as `vllm bench eviction calibrate` measured it.

A file of JSON that the engine and the lab read. Both need ratios only: how much dearer
a token is for each token before it, and how many tokens a further step costs. The
seconds are there too, with the points that they are from, for whoever doubts them.
"""

import json
import math
import reprlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vllm.v1.core.eviction.whole_file import replace_file

UNCALIBRATED_STEP = 256.0
"""What a further step of prefill is taken to cost without such a file, in tokens at
depth zero."""

_FORMAT = "vllm-eviction-cost"
_VERSION = 1
_LIMITS = {  # what is divided by, and what the C++ core holds in four bytes
    "token_seconds": (1e-12, 1e12),
    "block_size": (1, 2**31),
    "window": (0, 2**31),
}


@dataclass(frozen=True)
class Calibration:
    """What was measured, and of what.

    Attributes:
        model: As given to the engine.
        device: Its name.
        dtype: Of the model.
        block_size: Tokens.
        date: ISO 8601, UTC.
        request_seconds: What a request costs by itself.
        step_seconds: What a step of prefill costs by itself.
        token_seconds: What a token at depth zero costs more.
        per_token: Of depth, in units of a token at depth zero.
        per_window_token: The same as far as the window reaches.
        window: Tokens; 0 where there is none.
        points: What was measured: `depth`, `tokens`, `steps`, `seconds`.

    """

    model: str
    device: str
    dtype: str
    block_size: int
    date: str
    request_seconds: float
    step_seconds: float
    token_seconds: float
    per_token: float
    per_window_token: float = 0.0
    window: int = 0
    points: tuple[dict[str, float], ...] = ()

    @property
    def step_tokens(self) -> float:
        """What a further step costs, in tokens at depth zero."""
        return self.step_seconds / self.token_seconds

    @property
    def step_blocks(self) -> float:
        """The same in blocks at depth zero."""
        return self.step_tokens / self.block_size

    @property
    def title(self) -> str:
        """Of what it is, in a few words."""
        return f"{Path(self.model).name} on {self.device}"


def is_calibration(parsed: object) -> bool:
    """Whether this JSON is of such a file, whatever else is wrong with it."""
    return isinstance(parsed, dict) and parsed.get("format") == _FORMAT


def parse_calibration(parsed: object) -> Calibration:
    """Read what such a file holds.

    Raises:
        ValueError: What is wrong, as the end of a sentence.

    """
    if not isinstance(parsed, dict) or not is_calibration(parsed):
        raise ValueError("it is no file of `vllm bench eviction calibrate`")
    if parsed.get("version") != _VERSION:
        raise ValueError(f"its version is {parsed.get('version')!r}, not {_VERSION}")
    values = {field.name: parsed.get(field.name) for field in fields(Calibration)}
    for field in fields(Calibration):
        value = values[field.name]
        if field.type in (float, int):
            least, most = _LIMITS.get(field.name, (0.0, 1e12))
            good = _is_number(value, field.type) and least <= value <= most
        else:
            good = isinstance(value, str if field.type is str else list)
        if not good:
            raise ValueError(f"its {field.name} is {reprlib.repr(value)}")
    return Calibration(**values | {"points": tuple(values["points"])})


def read_calibration(path: str) -> Calibration:
    """Read such a file.

    Raises:
        ValueError: It cannot be used; the reason, as the end of a sentence.

    """
    try:
        return parse_calibration(json.loads(Path(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError("there is no such file") from None
    except (OSError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def write_calibration(calibration: Calibration, path: str) -> None:
    """Write such a file, as a whole.

    Raises:
        OSError: It cannot be written.

    """
    parsed = {"format": _FORMAT, "version": _VERSION} | asdict(calibration)
    parsed |= {"step_blocks": calibration.step_blocks}  # for readers who are people
    replace_file(path, json.dumps(parsed, indent=1) + "\n")


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and (kind is float or isinstance(value, int))
