# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The fork in this environment, with the repository's files in it.

The repacked wheel is installed, so that the `vllm` command, the metadata and the
dependencies are those of a user. Then every file of the overlay, and the extension,
is replaced by a symbolic link to the repository: an edit there is live at once.

A link for each file, never for a folder: pip's uninstall removes a link it has
listed, but walks into a linked folder and would delete the repository's files.
"""

import hashlib
import os
import zipfile
from pathlib import Path

from fork import ROOT, ForkError, record
from fork.environment import (
    install_torch,
    installed,
    is_fork,
    pip_install,
    refuse_other_vllm,
    site_packages,
)
from fork.overlay import overlay_files
from fork.upstream import Release

# Inside .dist-info, listed in RECORD: what the installed wheel was made from.
STAMP = "eviction_develop"


def fingerprint(release: Release, root: Path = ROOT) -> str:
    """Names what the installed wheel is made from, except for what is linked."""
    digest = hashlib.sha256(release.sha256.encode())
    files = sorted((root / "fork").rglob("*.py"))
    files += [root / name for name in ("LICENSE", "NOTICE")]
    files.append(root / "requirements" / "common.txt")
    for file in files:
        if file.is_file():
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def up_to_date(release: Release, root: Path = ROOT) -> bool:
    """Is the wheel that would be built now the one that is installed?"""
    version = installed("vllm")
    if version != release.fork_version:
        return False
    stamp = _info(version) / STAMP
    return stamp.is_file() and stamp.read_text() == fingerprint(release, root)


def install(release: Release, wheel: Path, root: Path = ROOT) -> None:
    """Installs the built wheel and what it needs.

    Raises:
        ForkError: another vLLM is installed, or pip fails.
    """
    refuse_other_vllm()
    install_torch(_requirements(wheel))
    # The same version again is no reason for pip to install: what is in it may
    # have changed all the same.
    if installed("vllm") and not pip_install(
        "--force-reinstall", "--no-deps", str(wheel)
    ):
        raise ForkError(f"pip could not install {wheel.name} (its report above)")
    if not pip_install(str(wheel)):
        raise ForkError(f"pip could not install {wheel.name} (its report above)")
    info = _info(release.fork_version)
    (info / STAMP).write_text(fingerprint(release, root))


def link(extension: Path, root: Path = ROOT, site: Path | None = None) -> int:
    """Links the overlay and the extension into the installed fork.

    New files get a link, links whose file is gone are dropped, RECORD follows.

    Returns:
        The number of linked files.
    """
    site = site or site_packages()
    version = installed("vllm", site)
    if version is None or not is_fork(version):
        raise ForkError(f"the fork is not installed in {site}")
    record_file = _info(version, site) / "RECORD"
    before = record_file.read_bytes()
    rows = record.parse(before)
    wanted = {path: file.resolve() for path, file in overlay_files(root).items()}
    wanted[f"vllm/{extension.name}"] = extension.resolve()

    for path in [p for p in rows if p not in wanted and _is_ours(site / p, root)]:
        (site / path).unlink()
        _remove_empty(site / path, site)
        del rows[path]
    for path, target in wanted.items():
        _link(site / path, target)
        rows[path] = record.unhashed(path)
    stamp = f"{record_file.parent.name}/{STAMP}"
    if (site / stamp).is_file():
        rows[stamp] = record.unhashed(stamp)
    after = record.render(rows)
    if after != before:
        temporary = record_file.with_name("RECORD.new")
        temporary.write_bytes(after)
        os.replace(temporary, record_file)
    return len(wanted)


def _link(place: Path, target: Path) -> None:
    if place.is_symlink() and os.readlink(place) == str(target):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, place)


def _is_ours(place: Path, root: Path) -> bool:
    """A link into the checkout, be its target there or not."""
    return place.is_symlink() and Path(os.readlink(place)).is_relative_to(
        root.resolve()
    )


def _remove_empty(place: Path, site: Path) -> None:
    """Removes a dropped link's bytecode, and folders that only it was in."""
    for file in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        file.unlink()
    for folder in place.parents:
        if folder == site:
            return
        cache = folder / "__pycache__"
        if cache.is_dir() and not any(cache.iterdir()):
            cache.rmdir()
        if any(folder.iterdir()):
            return
        folder.rmdir()


def _info(version: str, site: Path | None = None) -> Path:
    return (site or site_packages()) / f"vllm-{version}.dist-info"


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        head = archive.read(name).decode().split("\n\n")[0]
    prefix = "Requires-Dist: "
    return [
        line.removeprefix(prefix)
        for line in head.split("\n")
        if line.startswith(prefix)
    ]
