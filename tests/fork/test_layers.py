# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`fork` and the overlay do not know each other."""

import ast

from fork import ROOT
from fork.overlay import overlay_files


def imported(file) -> set[str]:
    """First names of the modules that a source imports, at any depth."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_fork_imports_nothing_of_vllm():
    for file in (ROOT / "fork").rglob("*.py"):
        assert "vllm" not in imported(file), file


def test_the_overlay_imports_nothing_of_fork():
    sources = [f for f in overlay_files().values() if f.suffix == ".py"]
    assert sources
    for file in sources:
        assert "fork" not in imported(file), file


def test_caches_and_hidden_files_are_no_overlay(checkout, overlay):
    for name in (".swp", "x.py~", "x.pyc", "__pycache__/y.py"):
        file = checkout / "vllm" / "v1" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    assert set(overlay_files(checkout)) == set(overlay)
