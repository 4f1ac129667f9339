# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies once more, plainly, from their papers.

Lists and dicts, a scan wherever a scan is the shortest way to say it: these are
what the C++ is held against, so they must be easy to believe and may be slow. A
list of blocks is in order of eviction: index 0 goes first. What differs from the
papers is what the headers in `csrc/eviction/policies` state.

`gittins` is a model of traffic rather than an order of blocks: what it computes is held
against a naive model in `tests/eviction/gittins`.

All models take the calls of `vllm._eviction_C.Policy`, of which they know those
that matter to them.
"""

from tests.eviction.naive_models.base import NaiveModel
from tests.eviction.naive_models.expected_cost import NaiveAsymCache
from tests.eviction.naive_models.fifo import (
    NaiveS3Fifo,
    NaiveS4Fifo,
    NaiveSieve,
    NaiveTwoQueue,
)
from tests.eviction.naive_models.frequency import NaiveGdsf, NaiveLfu
from tests.eviction.naive_models.groups import (
    NaivePartialCompute,
    NaiveRandomCompute,
    NaiveSessionLru,
)
from tests.eviction.naive_models.lecar import NaiveLeCaR
from tests.eviction.naive_models.lhd import NaiveLhd
from tests.eviction.naive_models.lirs import NaiveLirs
from tests.eviction.naive_models.recency import (
    NaiveArc,
    NaiveLru,
    NaiveSlru,
    NaiveTLru,
)
from tests.eviction.naive_models.workload_aware import NaiveWorkloadAware
from tests.eviction.naive_models.wtinylfu import NaiveWTinyLfu

__all__ = [
    "MODELS",
    "WITHOUT_MODEL",
    "NaiveArc",
    "NaiveAsymCache",
    "NaiveGdsf",
    "NaiveLeCaR",
    "NaiveLfu",
    "NaiveLhd",
    "NaiveLirs",
    "NaiveLru",
    "NaiveModel",
    "NaivePartialCompute",
    "NaiveRandomCompute",
    "NaiveS3Fifo",
    "NaiveS4Fifo",
    "NaiveSessionLru",
    "NaiveSieve",
    "NaiveSlru",
    "NaiveTLru",
    "NaiveTwoQueue",
    "NaiveWTinyLfu",
    "NaiveWorkloadAware",
]

WITHOUT_MODEL = {"gittins"}

MODELS: dict[str, type[NaiveModel]] = {
    model.name: model
    for model in (
        NaiveLru,
        NaiveSlru,
        NaiveArc,
        NaiveS3Fifo,
        NaiveS4Fifo,
        NaiveSieve,
        NaiveTwoQueue,
        NaiveLfu,
        NaiveGdsf,
        NaiveLeCaR,
        NaiveLirs,
        NaiveTLru,
        NaiveWTinyLfu,
        NaiveLhd,
        NaiveWorkloadAware,
        NaiveAsymCache,
        NaiveSessionLru,
        NaiveRandomCompute,
        NaivePartialCompute,
    )
}
