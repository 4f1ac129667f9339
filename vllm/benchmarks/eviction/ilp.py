# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The most that any cache could save, by integer linear programming.

A variable for each reuse of a block: whether the block is kept from the request that
had it to the one that asks for it again. A constraint for each pause between two
requests: no more blocks are kept in it than the capacity. The value of a reuse is what
the block costs to recompute ("When Fancy Eviction Fails", section 5.2).

Written as the change of what is kept from one pause to the next, every variable stands
in two constraints, with opposite signs: a network, whose corners are whole numbers. So
the simplex method finds the whole optimum, and no search for one is needed. It may
leave holes. With `prefix` a block can be a hit only where the block before it is one,
as in vLLM; then it is no network any more, and the solver has to search.

Like the other oracles it replays requests one after the other. It is small traces that
this is for: it takes about a kilobyte a reuse.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vllm.benchmarks.eviction.cost_models import CostModel
from vllm.benchmarks.eviction.trace import Trace

MAX_REUSES = 400_000
MAX_REUSES_PREFIX = 40_000


@dataclass(frozen=True)
class Reuses:
    """Every time that a block can be found which a request before has had.

    Attributes:
        access: int64 (reuses,); place in the trace's keys.
        start: int64 (reuses,); the last request before that had it.
        end: int64 (reuses,); the request that finds it.
        depth: int64 (reuses,); blocks before it in the prompt.

    """

    access: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    depth: NDArray[np.int64]


def reuses_of(trace: Trace) -> Reuses:
    """List the reuses, in order of their end and depth."""
    offsets = trace.offsets.astype(np.int64)
    request = np.repeat(np.arange(len(trace)), np.diff(offsets))
    depth = np.arange(len(request)) - offsets[request]
    # The last prompt token is always computed, and its block with it.
    findable = (trace.prompt_tokens.astype(np.int64) - 1) // trace.block_size
    order = np.argsort(trace.keys[: len(request)], kind="stable")
    same = np.flatnonzero(trace.keys[order][1:] == trace.keys[order][:-1])
    before, after = order[same], order[same + 1]
    kept = depth[after] < findable[request[after]]
    before, after = before[kept], after[kept]
    by_end = np.argsort(after)
    before, after = before[by_end], after[by_end]
    return Reuses(after, request[before], request[after], depth[after])


def best_hits(
    trace: Trace, capacity: int, cost: CostModel, prefix: bool = False
) -> NDArray[np.bool_]:
    """Solve.

    Args:
        trace: Requests; their keys name prefixes.
        capacity: Blocks of the cache.
        cost: Of a block.
        prefix: Hits are prefixes, without holes.

    Returns:
        bool (keys,); which blocks are found when they are asked for.

    Raises:
        ValueError: One line, when highspy is missing, the trace is too large, or the
            solver gives up.

    """
    try:
        import highspy
    except ImportError:
        raise ValueError(
            "ilp needs highspy: pip install -r requirements/bench.txt."
        ) from None
    reuses = reuses_of(trace)
    found = np.zeros(len(trace.keys), dtype=np.bool_)
    count, limit = len(reuses.access), MAX_REUSES_PREFIX if prefix else MAX_REUSES
    if count > limit:
        raise ValueError(
            f"{'ilp-prefix' if prefix else 'ilp'} is for small traces: this one reuses "
            f"blocks {count:,} times, more than {limit:,}; --seconds takes less of it."
        )
    if count == 0:
        return found
    with _standard_output_aside():
        solver = highspy.Highs()
        solver.setOptionValue("log_to_console", False)
    solver.passModel(_model(reuses, len(trace), capacity, cost, trace.block_size))
    if prefix:
        _require_prefixes(solver, reuses, count)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise ValueError(
            f"ilp: the solver ended with {solver.modelStatusToString(status)}."
        )
    values = np.array(solver.getSolution().col_value[:count])
    found[reuses.access[values > 0.5]] = True
    return found


@contextmanager
def _standard_output_aside() -> Iterator[None]:
    """The solver prints its version into what may be a table or JSON."""
    sys.stdout.flush()
    flush = ctypes.CDLL(None).fflush
    flush(None)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _model(
    reuses: Reuses, requests: int, capacity: int, cost: CostModel, block_size: int
) -> "highspy.HighsLp":  # noqa: F821
    """Columns: reuses, then what is kept after each request; a row for each request."""
    import highspy

    count = len(reuses.access)
    one = np.ones(count)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count + requests, requests
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.concatenate(
        (cost((reuses.depth + 1) * block_size), np.zeros(requests))
    )
    model.col_lower_ = np.zeros(count + requests)
    model.col_upper_ = np.concatenate((one, np.full(requests, float(capacity))))
    model.row_lower_ = model.row_upper_ = np.zeros(requests)
    # Begun at a request - ended at it = kept after it - kept before it.
    pauses = np.arange(requests)
    ends = pauses[:-1] + 1
    rows = np.concatenate(
        (
            np.column_stack((reuses.start, reuses.end)).ravel(),
            np.column_stack((pauses[:-1], ends)).ravel(),
            pauses[-1:],
        )
    )
    values = np.concatenate(
        (np.tile([1.0, -1.0], count), np.tile([-1.0, 1.0], requests - 1), [-1.0])
    )
    starts = np.concatenate((2 * np.arange(count + requests), [len(rows)]))
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = starts
    model.a_matrix_.index_ = rows
    model.a_matrix_.value_ = values
    return model


def _require_prefixes(solver: "highspy.Highs", reuses: Reuses, count: int) -> None:  # noqa: F821
    """A block is no hit unless the one before it is."""
    import highspy

    [children] = np.nonzero((np.diff(reuses.access) == 1) & (np.diff(reuses.end) == 0))
    for child in children + 1:
        solver.addRow(0.0, highspy.kHighsInf, 2, [child - 1, child], [1.0, -1.0])
    whole = [highspy.HighsVarType.kInteger] * count
    solver.changeColsIntegrality(count, np.arange(count), np.array(whole))
