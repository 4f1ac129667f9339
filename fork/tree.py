# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The series on a tree of upstream's files, in memory.

Nothing is written here: check, diff, build and apply all start from the same
`edit_tree`, so what was checked is what is built. The tree is a folder or a wheel,
of which only the files to be edited are read.
"""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from fork import ForkError
from fork.anchors import AnchorError
from fork.edits import Edit
from fork.names import unbound

NOTICE = "# Modified by the vLLM eviction fork, see its NOTICE file."

# Bytes of a file by its path in the tree, None where there is none.
Reader = Callable[[str], bytes | None]


@dataclass(frozen=True)
class EditedFile:
    """A file of upstream's and its edits.

    Attributes:
        paths: Where releases have it; a release has it at exactly one of them.
        edits: In the order in which they are made.
    """

    paths: tuple[str, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one edit; `problem` is None when it matched once."""

    path: str
    edit: Edit
    problem: str | None

    def __str__(self) -> str:
        scope = self.edit.scope or "the module"
        return f"edit {self.edit.name!r} of {self.path}, in {scope}: {self.problem}"


@dataclass
class Result:
    """Edited files, (before, after) by path, and an outcome for each edit."""

    files: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.problem is not None]

    def require(self) -> "Result":
        """Raises ForkError, a line for each edit, if one of them failed."""
        if self.failures:
            raise ForkError("\n".join(str(o) for o in self.failures))
        return self


def read_folder(folder: Path) -> Reader:
    def read(path: str) -> bytes | None:
        file = folder / path
        return file.read_bytes() if file.is_file() else None

    return read


def read_wheel(wheel: zipfile.ZipFile) -> Reader:
    members = set(wheel.namelist())
    return lambda path: wheel.read(path) if path in members else None


def edit_tree(
    read: Reader, series: Sequence[EditedFile], *, notice: bool = True
) -> Result:
    """Makes the edits of a series in memory.

    Args:
        read: Gives the files of the tree.
        series: The edits.
        notice: Put a change notice into edited files, which section 4(b) of the
            Apache licence asks of whoever passes them on.
    """
    result = Result()
    for file in series:
        found = [path for path in file.paths if read(path) is not None]
        if len(found) != 1:
            where = "nowhere" if not found else f"in {len(found)} places"
            problem = f"{' or '.join(file.paths)}: found {where}, not in one"
            result.outcomes += [Outcome(file.paths[0], e, problem) for e in file.edits]
            continue
        source = read(found[0])
        assert source is not None
        edited, outcomes = edit_source(found[0], source, file.edits)
        result.outcomes += outcomes
        if notice:
            edited = with_notice(edited)
        result.files[found[0]] = (source, edited)
    return result


def edit_source(
    path: str, source: bytes, edits: Sequence[Edit]
) -> tuple[bytes, list[Outcome]]:
    """One file: every edit is tried, so that all that is wrong is known at once."""
    module = cst.parse_module(source)
    problems: list[str | None] = []
    for edit in edits:
        try:
            module = edit.apply(module)
            problems.append(None)
        except AnchorError as error:
            problems.append(str(error))
    edited = module.bytes
    if not any(problems):
        text = edited.decode(module.encoding)
        for index, edit in enumerate(edits):
            if missing := unbound(text, edit.scope, edit.inserted):
                names = ", ".join(f"`{name}`" for name in missing)
                problems[index] = f"it reads {names}, which nothing there defines"
    outcomes = [Outcome(path, e, p) for e, p in zip(edits, problems, strict=True)]
    return edited, outcomes


def with_notice(source: bytes) -> bytes:
    """`source` with the change notice after the comment lines at its top."""
    lines = source.split(b"\n")
    at = 0
    while at < len(lines) and lines[at].startswith(b"#"):
        at += 1
    lines.insert(at, NOTICE.encode())
    return b"\n".join(lines)
