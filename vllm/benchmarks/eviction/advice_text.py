# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What `advise` says: sentences, each beside the figures that it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm.benchmarks.eviction.cost_models import CostModel
from vllm.benchmarks.eviction.jobs import Job
from vllm.benchmarks.eviction.replay import Result
from vllm.benchmarks.eviction.slices import Slices, Standing
from vllm.v1.core.eviction.registry import MANAGER

TOLD_APART = 0.003
"""Hit rates that differ by less are called equal: so closely does the pool model agree
with vLLM's scheduler (`docs/methodology.md`)."""

WORTH_WEIGHING = 0.011
"""Gap of the oracles' savings up to which "When Fancy Eviction Fails" (section 5.2)
calls it negligible."""


@dataclass(frozen=True)
class Finding:
    """A sentence.

    Attributes:
        topic: What it is about; a word.
        text: For people.
        figures: All that it says in numbers, unrounded.

    """

    topic: str
    text: str
    figures: dict[str, Any]


def leader(best: str, results: Mapping[str, Result]) -> Finding:
    """Say which policy has the most hits."""
    rates = {name: each.hit_rate for name, each in results.items()}
    others = sorted(set(rates) - {best}, key=lambda name: -rates[name])
    blocks = f"{results[best].query_blocks:,} full prompt blocks"
    against = ", ".join(f"{_rate(rates[name])} {name}" for name in others)
    if not others:
        text = f"Over the whole trace {best} finds {_rate(rates[best])} of {blocks}"
    elif rates[best] >= max(rates.values()):
        text = (
            f"Over the whole trace {best} finds the most: {_rate(rates[best])} of "
            f"{blocks}, against {against}"
        )
    else:
        text = (
            f"Over the whole trace nothing is told apart from {best}, "
            f"{_rate(rates[best])} of {blocks}: {against}"
        )
    return Finding(
        "leader",
        text + ".",
        {"hit_rate": rates, "prompt_blocks": results[best].query_blocks},
    )


def by_slice(standing: Standing, slices: Slices) -> Finding:
    """Say how steady the lead is."""
    counted = sum(standing.wins.values())
    held = [f"{name} {n}" for name, n in standing.wins.items() if n]
    return Finding(
        "slices",
        f"In slices of {slices.width:g} s the most hits have: {', '.join(held)} (of "
        f"{counted}). To have the best of each slice would add "
        f"{_points(standing.swing)}.",
        {"slice_s": slices.width, "wins": standing.wins, "swing": standing.swing},
    )


def choice(
    standing: Standing,
    best: Result,
    chosen: Job,
    rates: Mapping[float | None, float],
    tried: Result,
) -> Finding:
    """Say what to use, with what `adaptive` has under each rule."""
    figures = {
        "best": standing.best,
        "best_hit_rate": best.hit_rate,
        "adaptive_hit_rate": {
            "discounted" if window is None else f"window {window:g}": rate
            for window, rate in rates.items()
        },
        "adaptive_switches": len(tried.switches),
    }
    reached = ", ".join(
        _rate(rate)
        + (" by its default rule" if window is None else f" with {window:g} s")
        for window, rate in rates.items()
    )
    adaptive = f"adaptive has {reached}, with {_times(len(tried.switches))}"
    if len(rates) > 1:
        adaptive = f"adaptive has {reached} (the best changes {len(tried.switches)}x)"
    if chosen.policy.name == MANAGER:
        window = (
            "its default rule, no window"
            if chosen.window is None
            else f"a window of {chosen.window:g} s (--eviction-window)"
        )
        text = f"They trade places. Use adaptive with {window}: {adaptive}."
    elif standing.swing <= TOLD_APART:
        text = f"One policy is enough all day. Use {standing.best}; {adaptive}."
    else:
        text = (
            f"They trade places, but adaptive does not gain by it. Use {standing.best}"
            f"; {adaptive}."
        )
    return Finding("choice", text, figures)


def headroom(chosen: Job, result: Result, belady: Result, infinite: Result) -> Finding:
    """Say what Belady leaves."""
    left = belady.hit_rate - result.hit_rate
    return Finding(
        "headroom",
        f"Belady, which knows the future, has {_rate(belady.hit_rate)} at this "
        f"capacity: {_points(left)} more than {_name(chosen)}. A cache that forgets "
        f"nothing has {_rate(infinite.hit_rate)}.",
        {
            "belady_hit_rate": belady.hit_rate,
            "infinite_hit_rate": infinite.hit_rate,
            "left_to_belady": left,
        },
    )


def compute(
    chosen: Job,
    cost: CostModel,
    saved: float,
    belady: float,
    weighed: float,
    oracle: Result,
) -> Finding:
    """Say whether to weigh what blocks cost."""
    gap = weighed - belady
    verdict = (
        "it would pay; try partial-compute, under which holes are filled"
        if gap > WORTH_WEIGHING
        else "it does not pay"
    )
    return Finding(
        "compute",
        f"Of what recomputing all full prompt blocks would cost ({cost.name}: "
        f"1 + {cost.per_token:.3g} a token of depth), {_name(chosen)} saves "
        f"{_rate(saved)}, Belady {_rate(belady)}, and belady-compute, which weighs the "
        f"cost, {_rate(weighed)}. The gap of the oracles is {_points(gap)}: {verdict}.",
        {
            "cost": cost.name,
            "per_token": cost.per_token,
            "per_window_token": cost.per_window_token,
            "window": cost.window,
            "compute_savings": saved,
            "belady_savings": belady,
            "belady_compute_savings": weighed,
            "gap": gap,
            "belady_compute_holes": oracle.holes,
        },
    )


def memory(
    chosen: Job, result: Result, others: Mapping[int, Result], needed: int
) -> Finding:
    """Say what half and double the pool are worth."""
    parts = []
    for name, size in (
        ("half", chosen.capacity // 2),
        ("double", 2 * chosen.capacity),
    ):
        if size not in others:
            parts.append(
                f"{name} the memory cannot serve the longest request, which needs "
                f"{needed:,} blocks"
            )
            continue
        gain = others[size].hit_rate - result.hit_rate
        parts.append(
            f"{name} the memory ({size:,} blocks) has {_rate(others[size].hit_rate)} "
            f"({100 * gain:+.1f} points)"
        )
    return Finding(
        "memory",
        f"With {_name(chosen)}, {'; '.join(parts)}.",
        {
            "hit_rate": {
                str(chosen.capacity): result.hit_rate,
                **{str(size): each.hit_rate for size, each in others.items()},
            },
            "longest_request_blocks": needed,
        },
    )


def waiting(result: Result, max_running: int) -> Finding:
    """Say that requests queue."""
    return Finding(
        "waiting",
        f"Requests wait {result.mean_wait:,.1f} s on average for room or for one of "
        f"the {max_running:,} places to run in: the traffic is more than the modelled "
        "engine serves.",
        {"mean_wait_s": result.mean_wait},
    )


def _rate(value: float) -> str:
    return f"{value:.4f}"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _times(count: int) -> str:
    return "one change" if count == 1 else f"{count} changes"


def _name(job: Job) -> str:
    return job.policy.label
