# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""After a day of traffic `gittins` keeps no more than after an hour: all that it keeps
is bounded by its pool, not by what it has seen."""

import resource
from dataclasses import replace

from vllm._eviction_C import Simulator, make_policy

from vllm.benchmarks.eviction import workloads

HOURS = 24
BLOCKS = 1000  # under as much pressure as P1's pool at P1's rate
SEGMENTS = BLOCKS // 8 * 3 + 64  # that its table has room for


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_a_day_without_growth():
    workload = replace(workloads.P1.workload, rate=0.1)
    schedule = workloads.constant(workloads.EVEN, HOURS * 3600.0)
    trace = workloads.generate(workload, schedule)
    simulator = Simulator(
        trace.arrivals,
        trace.prompt_tokens,
        trace.output_tokens,
        trace.offsets,
        trace.keys,
        trace.block_size,
        make_policy("gittins", BLOCKS),
    )
    at_start = simulator.bytes
    longest = int((trace.offsets[1:] - trace.offsets[:-1]).max())
    segments, memory = [], []
    for hour in range(1, HOURS + 1):
        simulator.run_until(3600.0 * hour)
        simulator.check()
        _, (ghosts,), scalars = simulator.snapshot()
        assert len(ghosts) <= BLOCKS
        # Beside its tables the path of the request that ended last.
        assert simulator.bytes - at_start <= 16 * longest
        segments.append(scalars[3])
        memory.append(resident_bytes())
    assert simulator.counts["requests"] > 8000
    assert simulator.evictions > 500 * BLOCKS
    assert max(segments) <= SEGMENTS
    # As many in the second half of the day as in the first.
    assert max(segments[HOURS // 2 :]) < 1.5 * max(segments[: HOURS // 2])
    assert memory[-1] - memory[HOURS // 4] < 1 << 20
