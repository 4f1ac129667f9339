# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The overlay: the repository's files that upstream does not have."""

from pathlib import Path

from fork import ROOT, ForkError

IGNORED_FOLDERS = {"__pycache__"}
IGNORED_SUFFIXES = {".pyc", ".pyo", ".so"}


def overlay_files(root: Path = ROOT) -> dict[str, Path]:
    """Files of `vllm/` by the path that they have in the fork."""
    files = {}
    for path in sorted((root / "vllm").rglob("*")):
        relative = path.relative_to(root)
        hidden = any(part.startswith(".") for part in relative.parts)
        if (
            hidden
            or IGNORED_FOLDERS & set(relative.parts)
            or path.suffix in IGNORED_SUFFIXES
            or path.name.endswith("~")
            or not path.is_file()
        ):
            continue
        files[relative.as_posix()] = path
    return files


def refuse_shadowing(overlay: dict[str, Path], upstream: set[str]) -> None:
    """Raises ForkError if a file of the overlay is upstream's as well."""
    if both := sorted(set(overlay) & upstream):
        raise ForkError(
            f"{both[0]} is in the overlay and in upstream's tree: the overlay may "
            "only add files; change upstream's by an edit of the series"
        )
