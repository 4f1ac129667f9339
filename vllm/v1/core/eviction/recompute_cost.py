# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What the engine believes that prefill costs: a block by its depth, a further step.

As it was measured, where `--eviction-config.cost_file` names a file of `vllm bench
eviction calibrate`; else by the operations that the model's config says it needs. Only
ratios are used, so neither the device nor how many of them there are matters to the
latter. Whatever is wrong, there is a cost: at worst all blocks cost the same.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm._eviction_C import RecomputeCost
from vllm.logger import init_logger

from vllm.v1.core.eviction.cost_file import UNCALIBRATED_STEP, read_calibration
from vllm.v1.core.eviction.model_flops import (
    LoadedConfig,
    dense_estimate,
    flops_of,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = init_logger(__name__)

_LONGEST_WINDOW = 2**31
_NOT_UNDERSTOOD = (
    "The model's config does not tell what cached blocks cost to recompute (%s): taken "
    "%s."
)


@dataclass(frozen=True)
class PrefillCost:
    """What prefill costs.

    Attributes:
        cost: Of a block, by its depth.
        step_tokens: What a further step of prefill costs, in tokens at depth zero. No
            config tells it: it is a guess unless it was measured.

    """

    cost: RecomputeCost
    step_tokens: float = UNCALIBRATED_STEP


def prefill_cost(vllm_config: "VllmConfig") -> PrefillCost:
    """What prefill costs this engine; never raises.

    A `cost_file` that cannot be used is one warning, and the model's config decides.

    """
    cache_config = getattr(vllm_config, "cache_config", None)
    path = (getattr(cache_config, "eviction_config", None) or {}).get("cost_file")
    if path:
        try:
            found = read_calibration(path)
        except ValueError as error:
            logger.warning_once(
                "Cost file %s is ignored: %s.", path, str(error), scope="process"
            )
        else:
            logger.info_once(
                "Recompute costs of cached blocks: as measured with %s on %s (%s).",
                found.title,
                found.date,
                path,
                scope="process",
            )
            cost = RecomputeCost(found.per_token, found.per_window_token, found.window)
            return PrefillCost(cost, found.step_tokens)
    return PrefillCost(recompute_cost(vllm_config))


def recompute_cost(vllm_config: "VllmConfig") -> RecomputeCost:
    """What a block costs by the operations of the engine's model; never raises.

    A config that is not understood is one line at INFO: the cost is that of a dense
    model as wide or, where not even the width is known, the same for all blocks.

    """
    model = getattr(vllm_config, "model_config", None)
    config = LoadedConfig(getattr(model, "hf_text_config", None))
    why = ""
    for count in (flops_of, dense_estimate):
        try:
            flops = count(config)
            window = min(flops.window, _LONGEST_WINDOW)
            cost = RecomputeCost(flops.slope, flops.window_slope, window)
        except Exception as error:  # a config may hold anything
            text = " ".join(str(error).split()).rstrip(".")
            why = why or text or type(error).__name__
            continue
        if why:
            taken = "as of a dense model"
            logger.info_once(_NOT_UNDERSTOOD, why, taken, scope="process")
        return cost
    logger.info_once(_NOT_UNDERSTOOD, why, "all the same", scope="process")
    return RecomputeCost()
