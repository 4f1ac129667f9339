# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Writes rows as a table for people, JSON, CSV or Parquet.

Files have the figures in full; only the table for people rounds.
"""

import argparse
import csv
import importlib.util
import json
import os
import sys
import textwrap
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.benchmarks.eviction.advise import Advice

Row = dict[str, Any]


def check_file(flag: str, path: str | Path) -> None:
    """Fail before the work, not after it, where a file cannot be written.

    Args:
        flag: That names the file.
        path: The file, which need not exist.

    Raises:
        ValueError: One line.

    """
    target = Path(path).absolute()
    if target.is_dir():
        raise ValueError(f"{flag} is {path}: is a folder, must be a file.")
    if not target.parent.is_dir():
        raise ValueError(f"{flag} is {path}: its folder does not exist.")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ValueError(f"{flag} is {path}: cannot be written.")


def check_outputs(args: argparse.Namespace) -> None:
    """Fail before the work, not after it, where an output cannot be written.

    Raises:
        ValueError: One line.

    """
    for flag in ("json", "csv", "parquet"):
        path = getattr(args, flag, None)
        if path and path != "-":
            check_file(f"--{flag}", path)
    parquet = getattr(args, "parquet", None)
    if parquet == "-":
        raise ValueError("--parquet is -: must be a file.")
    if parquet and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            "--parquet needs pyarrow: pip install -r requirements/bench.txt."
        )


def write_table(
    rows: Sequence[Row],
    args: argparse.Namespace,
    title: str,
    left_out: Collection[str] = (),
) -> None:
    """Write rows where the arguments say; for people, unless to standard output.

    Args:
        rows: With the same keys.
        args: `json`, `csv` and `parquet`.
        title: Of the table for people.
        left_out: Columns that are not in the table for people, as are those that
            are empty.

    """
    if args.json:
        with _opened(args.json) as file:
            json.dump(list(rows), file, indent=1)
            file.write("\n")
    if args.csv:
        with _opened(args.csv) as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
    if args.parquet:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), args.parquet)
    if "-" not in (args.json, args.csv) and rows:
        empty = {key for key in rows[0] if all(row[key] is None for row in rows)}
        shown = [key for key in rows[0] if key not in empty.union(left_out)]
        _print([{key: row[key] for key in shown} for row in rows], title)


def write_advice(advice: "Advice", about: dict[str, Any], path: str | None) -> None:
    """Write an advice for people, unless its JSON goes to standard output.

    Args:
        advice: Of `advise`.
        about: What it was made from, for the JSON.
        path: Of the JSON; - is standard output.

    """
    if path:
        with _opened(path) as file:
            json.dump(about | advice.to_json(), file, indent=1)
            file.write("\n")
    if path != "-":
        for finding in advice.findings:
            print(textwrap.fill(finding.text, 88, subsequent_indent="  "))
        slices = advice.slices
        rows = [
            {"from_s": i * slices.width, "prompt_blocks": int(slices.prompt_blocks[i])}
            | {
                name: hits[i] / max(1, int(slices.prompt_blocks[i]))
                for name, hits in advice.hits.items()
            }
            for i in range(len(slices))
        ]
        _print(rows, "Hit blocks over full prompt blocks, by time of arrival")


def _opened(path: str) -> Any:
    if path == "-":
        return nullcontext(sys.stdout)
    return Path(path).open("w", encoding="utf-8", newline="")


def _print(rows: Sequence[Row], title: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for name, value in rows[0].items():
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(escape(_text(value)) for value in row.values()))
    # A pipe has no width to fit into.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
