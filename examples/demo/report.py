# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What two policies did with a load: a table, and what follows from it in words."""

from dataclasses import dataclass

import compare
from replay import Answer
from rich.console import Console
from rich.table import Table

FOOTNOTE = (
    "Hit rate: cached tokens of all prompt tokens, as /metrics counts them. Evictions "
    "are not counted under lru, which is vLLM's own queue, untouched. Told apart: a "
    f"paired bootstrap over runs of {compare.RUN} requests, see "
    "examples/demo/compare.py."
)


@dataclass
class Run:
    """What one policy did with one load."""

    answers: list[Answer]
    evictions: float | None  # None where they are not counted


@dataclass(frozen=True)
class Measure:
    """A row of the table: a statistic and its unit.

    Attributes:
        name: What the table calls it.
        statistic: Of a run's answers.
        factor: From what the statistic gives to the unit.
        unit: As the table shows it.
        is_time: Less is better, and there is a control.
    """

    name: str
    statistic: compare.Statistic
    factor: float
    unit: str
    is_time: bool


MEASURES = (
    Measure("hit rate", compare.hit_rate, 100, "%", is_time=False),
    Measure("TTFT p50", compare.ttft(0.5), 1000, "ms", is_time=True),
    Measure("TTFT p95", compare.ttft(0.95), 1000, "ms", is_time=True),
)


def show(load: str, runs: dict[str, Run], console: Console) -> None:
    """Prints a load's table and, for each measure, which policy was better.

    Args:
        load: Its name.
        runs: Of two policies, over the same requests.
        console: Of rich.
    """
    (first, one), (second, two) = runs.items()
    title = f"{load}: {len(one.answers)} requests"
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for column in (first, second, "difference", "95 % interval", "told apart"):
        table.add_column(column, justify="right")
    better: dict[str, list[str]] = {first: [], second: []}
    too_short, disturbed = [], []
    for measure in MEASURES:
        gap = compare.difference(one.answers, two.answers, measure.statistic)
        if not gap.told_apart:
            too_short.append(measure.name)
        elif measure.is_time and is_disturbed(one, two, measure):
            disturbed.append(measure.name)
        else:
            second_wins = (gap.value < 0) == measure.is_time
            better[second if second_wins else first].append(measure.name)
        values = [
            measure.statistic(compare.arrays(run.answers)) * measure.factor
            for run in (one, two)
        ]
        verdict = "no" if measure.name in too_short else "yes"
        table.add_row(
            measure.name,
            *(f"{value:.1f} {measure.unit}" for value in values),
            f"{gap.value * measure.factor:+.1f}",
            f"{gap.low * measure.factor:+.1f} … {gap.high * measure.factor:+.1f}",
            "disturbed" if measure.name in disturbed else verdict,
        )
    evictions = [
        "–" if run.evictions is None else f"{run.evictions:.0f}" for run in (one, two)
    ]
    table.add_row("evictions", *evictions, "", "", "")
    console.print(table)
    for policy, names in better.items():
        if names:
            console.print(f"{load}: {policy} is better in {', '.join(names)}")
    if too_short:
        console.print(
            f"{load}: the slice is too short to tell {first} and {second} apart in "
            f"{', '.join(too_short)}"
        )
    if disturbed:
        console.print(
            f"{load}: {', '.join(disturbed)} differ also where both found the same in "
            "the cache: something else slowed a server, so they say nothing"
        )


def is_disturbed(one: Run, two: Run, measure: Measure) -> bool:
    """Whether a time differs where the policies give it no reason to."""
    gap = compare.control(one.answers, two.answers, measure.statistic)
    return gap is not None and gap.excludes_zero
