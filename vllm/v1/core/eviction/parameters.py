# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The parameters of the policies in C++: a dataclass each, with ranges and defaults.

The defaults are those of `csrc/eviction/policies`; a test holds the two together. None
leaves it to the core.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval


@dataclass
class S3FIFOConfig:
    """Parameters of `s3fifo`."""

    small_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.1
    """Share of the evictable blocks that the small queue may hold before it is
    evicted from. More protects new blocks longer, fewer old ones."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.9
    """Evicted blocks that are remembered, as a share of the pool."""
    promotion: Annotated[int, Interval(ge=1, le=3)] = 1
    """Uses in the small queue that lead to the main queue. The paper has 2; on
    prefix-cache traffic 1 is better."""


@dataclass
class S4FIFOConfig:
    """Parameters of `s4fifo`, under the names that its paper has for them."""

    rho_s: Annotated[float, Interval(ge=0.05, le=0.9)] = 0.1
    """Share of the evictable blocks that the small queue may hold before it is
    evicted from."""
    rho_g: Annotated[float, Interval(ge=0, le=6)] = 0.9
    """Evicted blocks that are remembered, as a share of the pool."""
    kappa: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """A use counts only when as many blocks as this share of the small queue have
    entered it since: uses within a moment are one burst. The paper has 0 or 0.25."""
    tau_s: Annotated[int, Interval(ge=1, le=3)] = 1
    """Uses in the small queue that lead to the main queue. The paper has 1 or 2."""
    tau_g: Annotated[int, Interval(ge=0, le=1)] = 0
    """Uses that a block must have had to be remembered when it leaves the small
    queue. With 1, `tau_s` must be more, or nothing is remembered."""


@dataclass
class SLRUConfig:
    """Parameters of `slru`."""

    protected_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.8
    """Share of the evictable blocks that the protected segment may hold. More keeps
    reused blocks longer, and new ones shorter."""


@dataclass
class TwoQueueConfig:
    """Parameters of `2q`."""

    in_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.25
    """Share of the evictable blocks that the queue of new blocks may hold before it
    is evicted from."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, as a share of the pool. Without any, no
    block is ever known to have returned."""


@dataclass
class LFUConfig:
    """Parameters of `lfu`."""

    ageing: bool = True
    """Whether blocks that were popular once give way to those in use now. Without
    it, old counts live as long as their blocks."""


@dataclass
class LIRSConfig:
    """Parameters of `lirs`."""

    hir_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Share of the pool, one block at least, that is left to blocks which were not
    used twice in a short while. The paper has 1 %."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.75
    """Evicted blocks that are remembered at most, as a share of the pool."""


@dataclass
class LeCaRConfig:
    """Parameters of `lecar`."""

    learning_rate: Annotated[float, Interval(gt=0, le=10)] = 0.45
    """How much one regret changes the weights. More follows changes sooner."""
    discount: Annotated[float, Interval(gt=0, le=1)] = 0.005
    """What is left of a regret after as many accesses as the pool has blocks."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, half for each expert, as a share of the
    pool. Without any, the weights stay equal."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws between the experts."""


@dataclass
class TLRUConfig:
    """Parameters of `t-lru`."""

    xi: Annotated[int, Interval(ge=0, le=10_000_000)] = 2048
    """Tokens that may be recomputed within the target for the time to the first
    token: the target times the prefill rate. With 0 this is LRU."""
    next_prompt: Annotated[int, Interval(ge=0, le=10_000_000)] = 256
    """Tokens by which a conversation is longer when it comes back."""


@dataclass
class WTinyLFUConfig:
    """Parameters of `wtinylfu`."""

    window_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Share of the pool, one block at least, that new blocks have to themselves. Where
    the hill climber starts."""
    protected_ratio: Annotated[float, Interval(gt=0, lt=1)] = 0.8
    """Share of the rest that is left to blocks which were hit there."""
    climb: bool = True
    """Whether the border between the two moves with the hit rate."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws by which a loser is let in now and then."""


@dataclass
class LHDConfig:
    """Parameters of `lhd`."""

    samples: Annotated[int, Interval(ge=1, le=1024)] = 32
    """Blocks that are drawn for each eviction, of which the worst goes."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws."""


@dataclass
class WorkloadAwareConfig:
    """Parameters of `workload-aware`."""

    horizon: Annotated[float, Interval(ge=0.01, le=100)] = 1.0
    """A block is worth the probability that it returns within this many pools' worth
    of accesses."""
    ghost_ratio: Annotated[float, Interval(ge=0, le=8)] = 0.5
    """Evicted blocks that are remembered, as a share of the pool: their returns count
    in the fits. Without any, what is evicted early seems never to return."""


@dataclass
class AsymCacheConfig:
    """Parameters of `asymcache`."""

    half_life: Annotated[float, Interval(ge=0.01, le=100)] = 1.0
    """Accesses since the last use that halve the probability of another, in pools'
    worth. More weighs cost and uses higher against age."""
    cost_file: str = ""
    """A file of `vllm bench eviction calibrate`: what recomputing a block costs on this
    device. By default the operations are counted that the model's config tells."""


@dataclass
class GDSFConfig:
    """Parameters of `gdsf`."""

    cost_file: str = ""
    """A file of `vllm bench eviction calibrate`: what recomputing a block costs on this
    device. By default the operations are counted that the model's config tells."""


@dataclass
class RandomComputeConfig:
    """Parameters of `random-compute`."""

    samples: Annotated[int, Interval(ge=1, le=1024)] = 16
    """Blocks that are drawn for each eviction, of which the cheapest goes."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws."""
    cost_file: str = ""
    """A file of `vllm bench eviction calibrate`: what recomputing a block costs on this
    device. By default the operations are counted that the model's config tells."""


@dataclass
class PartialComputeConfig:
    """Parameters of `partial-compute`."""

    samples: Annotated[int, Interval(ge=1, le=1024)] = 16
    """Nodes that are drawn, of which the cheapest gives a chunk of blocks."""
    chunk: Annotated[int, Interval(ge=1, le=1_000_000)] | None = None
    """Blocks that a node gives at once, from its beginning. By default as many as a
    step of prefill computes, where holes are filled, so that filling one is one step;
    else 32."""
    small_ratio: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Share of the evictable blocks that those never hit may hold before they are
    evicted from, first in, first out; costs count among the others only. With 0 they
    count among all. For floods of one-off prompts."""
    seed: Annotated[int, Interval(ge=0, lt=2**32)] = 0
    """Of the draws."""
    cost_file: str = ""
    """A file of `vllm bench eviction calibrate`: what recomputing a block costs on this
    device. By default the operations are counted that the model's config tells."""
