# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Repacks upstream's wheel as the fork's.

Most of the wheel is hundreds of megabytes of compiled kernels that do not change.
Their compressed bytes are copied as they are: seconds, where deflating again takes
up to a minute. The archive is written anew, never appended to, so that nothing
replaced is left in it.

The platform in the tag is upstream's, from the file name: the WHEEL file inside the
CPU wheel says something else. The extension is built on this machine against its C
library, so a wheel for other machines has to be built on the oldest of them.
"""

import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from fork import ROOT, ForkError, record
from fork.edits import SetString
from fork.extension import python_tags
from fork.overlay import overlay_files, refuse_shadowing
from fork.rawzip import copy_raw
from fork.series import SERIES
from fork.tree import EditedFile, edit_tree, read_wheel
from fork.upstream import Release

# Members of our own are dated alike, whenever they were made.
TIMESTAMP = (2020, 1, 1, 0, 0, 0)
# Named by the CPU wheel, but not needed there, and they pull in a CUDA torch.
UNNEEDED_ON_CPU = {"torchaudio", "torchvision", "torchcodec"}
SIGNATURES = ("RECORD.jws", "RECORD.p7s", "direct_url.json")
LICENSES = ("LICENSE", "NOTICE")


def version_file(version: str) -> EditedFile:
    """The edit that gives the package its version (the tuple stays numeric)."""
    edit = SetString("version of the fork", "", "__version__", version)
    return EditedFile(("vllm/_version.py",), (edit,))


@dataclass(frozen=True)
class Member:
    data: bytes
    executable: bool = False


def build_wheel(
    release: Release,
    upstream_wheel: Path,
    extension: Path,
    folder: Path,
    root: Path = ROOT,
) -> Path:
    """Writes the fork's wheel into a folder.

    Args:
        release: The release that `upstream_wheel` is; its version names the fork.
        upstream_wheel: A verified wheel.
        extension: The built module `_eviction_C`.
        folder: Where to write.
        root: The checkout that the overlay, licence and requirements are from.

    Returns:
        The path of the wheel.

    Raises:
        ForkError: an edit does not match or the overlay would replace a file.
    """
    interpreter, abi = python_tags(extension)
    platform = upstream_wheel.stem.split("-")[-1]
    tag = f"{interpreter}-{abi}-{platform}"
    version = release.fork_version
    out = folder / f"vllm-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(upstream_wheel) as source:
        plan = _Plan(source, version, tag, root, extension, release.device)
        partial = out.with_suffix(".partial")
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as target:
                plan.write(target)
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
    return out


class _Plan:
    """What goes into the wheel: upstream's members as they are, and our own."""

    def __init__(
        self,
        source: zipfile.ZipFile,
        version: str,
        tag: str,
        root: Path,
        extension: Path,
        device: str,
    ) -> None:
        self.source = source
        names = [n for n in source.namelist() if not n.endswith("/")]
        self.old_info = dist_info(names)
        self.new_info = f"vllm-{version}.dist-info"
        overlay = overlay_files(root)
        refuse_shadowing(overlay, set(names))

        series = (*SERIES, version_file(version))
        edited = edit_tree(read_wheel(source), series).require().files
        self.replaced = {path: after for path, (_, after) in edited.items()}
        self.added = {p: Member(file.read_bytes()) for p, file in overlay.items()}
        self.added[f"vllm/{extension.name}"] = Member(extension.read_bytes(), True)

        licenses = {n: root / n for n in LICENSES if (root / n).is_file()}
        for name, file in licenses.items():
            path = f"{self.new_info}/licenses/eviction-fork/{name}"
            self.added[path] = Member(file.read_bytes())
        metadata = source.read(f"{self.old_info}/METADATA").decode()
        self.own_info = {
            "METADATA": edit_metadata(
                metadata, version, device, requirements(root), list(licenses)
            ),
            "WHEEL": edit_wheel_file(
                source.read(f"{self.old_info}/WHEEL").decode(), tag
            ),
        }
        self.unchanged = [
            n
            for n in names
            if n not in self.replaced and not n.startswith(f"{self.old_info}/")
        ]
        self.info_members = [
            n.removeprefix(f"{self.old_info}/")
            for n in names
            if n.startswith(f"{self.old_info}/")
        ]

    def write(self, target: zipfile.ZipFile) -> None:
        upstream = record.parse(self.source.read(f"{self.old_info}/RECORD"))
        rows = {}

        def add(path: str, data: bytes, mode: int = 0o644) -> None:
            entry = zipfile.ZipInfo(path, TIMESTAMP)
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, data)
            rows[path] = record.row(path, data)

        size = sum(self.source.getinfo(n).compress_size for n in self.unchanged)
        with tqdm(
            total=size, unit="B", unit_scale=True, desc="repacking", disable=None
        ) as bar:
            for name in self.unchanged:
                entry = self.source.getinfo(name)
                copy_raw(self.source, entry, target)
                bar.update(entry.compress_size)
                known = upstream.get(name)
                rows[name] = (
                    known
                    if known and known[1].startswith("sha256=")
                    else record.row(name, self.source.read(name))
                )
        for name, data in self.replaced.items():
            add(name, data, _mode(self.source.getinfo(name)))
        for name, member in self.added.items():
            add(name, member.data, 0o755 if member.executable else 0o644)
        for name in self.info_members:
            if name in SIGNATURES or name == "RECORD":
                continue
            old = f"{self.old_info}/{name}"
            data = self.own_info.get(name) or self.source.read(old)
            mode = _mode(self.source.getinfo(old))
            add(f"{self.new_info}/{name}", data, mode)
        path = f"{self.new_info}/RECORD"
        listed = dict(rows)
        listed[path] = record.unhashed(path)
        add(path, record.render(listed))


def _mode(entry: zipfile.ZipInfo) -> int:
    return stat.S_IMODE(entry.external_attr >> 16) or 0o644


def dist_info(names: list[str]) -> str:
    """The wheel's .dist-info folder."""
    for name in names:
        if name.endswith(".dist-info/RECORD") and name.count("/") == 1:
            return name.split("/")[0]
    raise ForkError("the wheel has no RECORD")


def requirements(root: Path) -> list[str]:
    """What the overlay needs beyond upstream: requirements/common.txt."""
    file = root / "requirements" / "common.txt"
    if not file.is_file():
        return []
    lines = (line.split("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def edit_metadata(
    text: str, version: str, device: str, needed: list[str], licenses: list[str]
) -> bytes:
    """METADATA of the fork.

    The name stays `vllm`, because upstream's code looks itself up by it.
    """
    head, _, body = text.partition("\n\n")
    upstream = re.search(r"^Version: (.*)$", head, re.M)
    name = re.search(r"^Name: (.*)$", head, re.M)
    if not upstream or not name:
        raise ForkError("the wheel's METADATA has no Name or Version")
    base = f"{name[1]} {upstream[1]}"
    lines = []
    for line in head.split("\n"):
        key, _, value = line.partition(": ")
        if key == "Name":
            line = "Name: vllm"
        elif key == "Version":
            line = f"Version: {version}"
        elif key == "Summary":
            line = f"Summary: Eviction fork of {base}: {value}"
        elif key == "Project-URL" and value.startswith("Bug Tracker"):
            continue  # the fork's bugs are not theirs
        elif key == "Requires-Dist" and device == "cpu":
            wanted = re.match(r"[\w.-]+", value)
            if wanted and wanted[0].lower() in UNNEEDED_ON_CPU:
                continue
        lines.append(line)
    lines += [f"License-File: eviction-fork/{name}" for name in licenses]
    lines += [f"Requires-Dist: {requirement}" for requirement in needed]
    word = (
        f"This is a fork of {base} with more eviction policies for the prefix cache. "
        "It is not published by the vLLM project. Upstream's description follows."
    )
    return ("\n".join(lines) + f"\n\n{word}\n\n{body}").encode()


def edit_wheel_file(text: str, tag: str) -> bytes:
    lines = [line for line in text.strip().split("\n") if line]
    kept = [line for line in lines if not line.startswith(("Tag:", "Build:"))]
    return ("\n".join([*kept, f"Tag: {tag}"]) + "\n").encode()
