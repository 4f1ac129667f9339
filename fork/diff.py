# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The whole change as one patch, as a pull request to upstream would show it.

It is made from the pinned wheel when it is asked for and never stored: its context
lines are upstream's.
"""

import difflib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from fork import ROOT
from fork.overlay import overlay_files
from fork.series import SERIES
from fork.tree import edit_tree, read_wheel


def patch(wheel: Path, root: Path = ROOT) -> Iterator[str]:
    """Lines of a patch in git's form: edits, then the files that are new.

    Raises:
        ForkError: an edit does not match.
    """
    with zipfile.ZipFile(wheel) as archive:
        edited = edit_tree(read_wheel(archive), SERIES, notice=False).require().files
    for path, (before, after) in edited.items():
        yield f"diff --git a/{path} b/{path}\n"
        yield from _lines(f"a/{path}", f"b/{path}", before.decode(), after.decode())
    sources = {
        file.relative_to(root).as_posix(): file
        for file in sorted((root / "csrc").rglob("*"))
        if file.is_file()
    }
    for path, file in (overlay_files(root) | sources).items():
        yield f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
        yield from _lines("/dev/null", f"b/{path}", "", file.read_text())


def _lines(old: str, new: str, before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), old, new
    )
    for line in lines:
        if line.endswith("\n"):
            yield line
        else:
            yield f"{line}\n\\ No newline at end of file\n"
