# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What it costs to recompute a block, by how deep in a prompt it lies.

A token passes through the same weights wherever it stands; attention looks back over
all tokens before it, in layers with a sliding window over those within. So the cost of
a block is a straight line of its depth, or two where there is a window:

    1 + per_token * depth + per_window_token * min(depth, window)

in units of a block at depth zero, which is the form that the C++ core takes. A block
counts as if all its tokens stood where its last one does.

Four models: `uniform` (a block is a block, and savings are the block hit rate),
`linear` (cost in proportion to depth, as where attention is all there is; it is 1 +
depth in tokens, which the second block already outgrows), the floating-point operations
of a model, from its `config.json`, and what `vllm bench eviction calibrate` measured.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from vllm._eviction_C import RecomputeCost

from vllm.v1.core.eviction.cost_file import (
    UNCALIBRATED_STEP,
    is_calibration,
    parse_calibration,
)
from vllm.v1.core.eviction.model_flops import Flops, flops_of
from vllm.v1.core.eviction.registry import nearest


@dataclass(frozen=True)
class CostModel:
    """A cost by depth.

    Attributes:
        name: For tables.
        per_token: Of depth, in units of a block at depth zero.
        per_window_token: Of depth as far as the window reaches.
        window: Tokens.
        flops: Where the figures are from, if from a model.
        step_tokens: What a further step of prefill costs, in tokens at depth zero. No
            model's config tells it: the default is the engine's.

    """

    name: str
    per_token: float
    per_window_token: float = 0.0
    window: int = 0
    flops: Flops | None = None
    step_tokens: float = UNCALIBRATED_STEP

    def __call__(self, depth: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cost of blocks that end at these depths, tokens."""
        return (
            1.0
            + self.per_token * depth
            + self.per_window_token * np.minimum(depth, self.window)
        )

    def of_prefixes(self, blocks: int, block_size: int) -> NDArray[np.float64]:
        """float64 (blocks + 1,); cost of the first 0, 1, 2... blocks of a prompt."""
        depth = np.arange(1, blocks + 1, dtype=np.int64) * block_size
        return np.concatenate(([0.0], np.cumsum(self(depth))))

    def native(self) -> RecomputeCost:
        """What the C++ core takes."""
        return RecomputeCost(self.per_token, self.per_window_token, self.window)


UNIFORM = CostModel("uniform", 0.0)
LINEAR = CostModel("linear", 1.0)


def parse_cost(text: str) -> CostModel:
    """Read `uniform`, `linear`, or a path: a model's config.json, or its folder, or a
    file of `vllm bench eviction calibrate`.

    Raises:
        ValueError: One line.

    """
    named = {each.name: each for each in (UNIFORM, LINEAR)}
    if text in named:
        return named[text]
    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"--cost is {text}: must be uniform, linear, a model's config.json or a "
            "file of `vllm bench eviction calibrate`, and there is no such file."
            f"{nearest(text, list(named))}"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"--cost is {text}: cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"--cost is {text}: cannot be read: it is no JSON object.")
    if is_calibration(config):
        try:
            found = parse_calibration(config)
        except ValueError as error:
            raise ValueError(f"--cost is {text}: {error}.") from None
        return CostModel(
            found.title,
            found.per_token,
            found.per_window_token,
            found.window,
            step_tokens=found.step_tokens,
        )
    try:
        flops = flops_of(config)
    except ValueError as error:
        raise ValueError(f"--cost is {text}: {error}") from None
    return from_flops(flops, str(config.get("model_type") or path.parent.name))


def from_flops(flops: Flops, name: str) -> CostModel:
    """Put a model's operations into units of a block at depth zero."""
    return CostModel(name, flops.slope, flops.window_slope, flops.window, flops)
