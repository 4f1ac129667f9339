# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws dashboard.json without Grafana: each panel with its own expressions.

It asks a Prometheus for exactly what Grafana would ask it for, so that a picture
with all its lines proves that the expressions, the labels and the metrics' names
are right.

    python examples/monitoring/render.py --minutes 10 --out dashboard.png
"""

import argparse
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import requests
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from tqdm import tqdm

DASHBOARD = Path(__file__).with_name("dashboard.json")
COLUMNS = 24  # of Grafana's grid
STEPS = 300  # points of a line


@dataclass
class Series:
    """One line of a panel.

    Attributes:
        label: As the legend has it.
        ref: Letter of the query in the panel.
        minutes: Of each point, from the start.
        values: Of each point.

    """

    label: str
    ref: str
    minutes: np.ndarray
    values: np.ndarray


def expand(expression: str, rate_interval: str) -> str:
    """Put in what Grafana's variables stand for when everything is selected."""
    expression = expression.replace("$__rate_interval", rate_interval)
    return re.sub(r"\$\w+", ".*", expression)


def query(
    url: str, panel: dict[str, Any], start: float, end: float, rate_interval: str
) -> list[Series]:
    """Ask for all lines of a panel.

    Raises:
        ValueError: Prometheus refuses an expression; one line.
        requests.RequestException: It cannot be reached.

    """
    found = []
    for target in panel["targets"]:
        response = requests.get(
            f"{url}/api/v1/query_range",
            params={
                "query": expand(target["expr"], rate_interval),
                "start": f"{start}",
                "end": f"{end}",
                "step": f"{(end - start) / STEPS}",
            },
            timeout=60,
        )
        answer = response.json()
        if answer["status"] != "success":
            raise ValueError(f"{panel['title']}: {answer['error']}")
        for result in answer["data"]["result"]:
            label = target["legendFormat"]
            for name, value in result["metric"].items():
                label = label.replace("{{" + name + "}}", value)
            points = np.array([[float(x) for x in pair] for pair in result["values"]])
            found.append(
                Series(
                    label, target["refId"], (points[:, 0] - start) / 60, points[:, 1]
                )
            )
    return found


def draw_lines(axes: Axes, panel: dict[str, Any], lines: list[Series]) -> None:
    """A time series; dashes and bars as the panel wants them."""
    defaults = panel["fieldConfig"]["defaults"]
    bars = defaults["custom"].get("drawStyle") == "bars"
    dashed, widths = set(), {}
    for override in panel["fieldConfig"]["overrides"]:
        ref = override["matcher"]["options"]
        for field in override["properties"]:
            if field["id"] == "custom.lineStyle":
                dashed.add(ref)
            if field["id"] == "custom.lineWidth":
                widths[ref] = field["value"]
    for line in lines:
        if bars:
            width = line.minutes[-1] / STEPS if len(line.minutes) > 1 else 0.1
            axes.bar(line.minutes, line.values, width=width, label=line.label)
            continue
        axes.plot(
            line.minutes,
            line.values,
            linestyle="--" if line.ref in dashed else "-",
            linewidth=widths.get(line.ref, defaults["custom"].get("lineWidth", 1)),
            label=line.label,
        )
    if defaults["unit"] == "percentunit":
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylim(bottom=0, top=defaults.get("max"))
    if axes.get_ylim()[1] < 1e-9 or not lines:
        axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", ncols=2)


def draw_timeline(axes: Axes, lines: list[Series]) -> None:
    """A row for each line, filled where it is 1."""
    for row, line in enumerate(lines):
        axes.fill_between(
            line.minutes,
            row - 0.4,
            row + 0.4,
            where=(line.values > 0.5).tolist(),
            step="post",
            color="tab:green",
            linewidth=0,
        )
    axes.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.legend(handles=[Patch(color="tab:green", label="live")], fontsize=7)


def draw(
    dashboard: dict[str, Any], lines: dict[int, list[Series]], minutes: float, out: Path
) -> None:
    """Lay the panels out as Grafana does."""
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(14, rows * 0.42), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    for panel in panels:
        at = panel["gridPos"]
        axes = figure.add_subplot(
            grid[at["y"] : at["y"] + at["h"], at["x"] : at["x"] + at["w"]]
        )
        axes.set_title(panel["title"], loc="left", fontsize=10)
        if panel["type"] == "state-timeline":
            draw_timeline(axes, lines[panel["id"]])
        else:
            draw_lines(axes, panel, lines[panel["id"]])
        axes.set_xlim(0, minutes)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("minutes", fontsize=8)
    figure.savefig(out, dpi=80)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prometheus", default="http://localhost:9090", metavar="URL")
    parser.add_argument("--minutes", type=float, default=60.0, help="back from --end")
    parser.add_argument("--end", type=float, help="Unix time; now by default")
    parser.add_argument(
        "--rate-interval",
        default="1m",
        help="at least four times the scrape interval, as in Grafana",
    )
    parser.add_argument("--out", type=Path, default=Path("dashboard.png"))
    args = parser.parse_args()
    if not args.minutes > 0:
        parser.error(f"--minutes is {args.minutes:g}: must be more than 0.")
    end = args.end or time.time()
    dashboard = json.loads(DASHBOARD.read_text())
    lines = {}
    try:
        for panel in tqdm(dashboard["panels"], desc="panels"):
            lines[panel["id"]] = query(
                args.prometheus, panel, end - 60 * args.minutes, end, args.rate_interval
            )
    except (requests.RequestException, ValueError) as error:
        print(f"render: error: {error}", file=sys.stderr)
        return 2
    empty = [p["title"] for p in dashboard["panels"] if not lines[p["id"]]]
    if empty:
        print(f"render: no data for: {', '.join(empty)}", file=sys.stderr)
    draw(dashboard, lines, args.minutes, args.out)
    print(args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
