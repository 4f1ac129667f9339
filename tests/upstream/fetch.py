# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Fetches upstream's own tests, which this repository does not hold.

The tests are part of upstream's source distribution and nothing else: no wheel
carries them. So pip fetches the source distribution (pip is the one way that
works with every mirror a user may have configured), its sha256 is compared with
the one below, and ``tests/`` alone is unpacked into a folder of its own. Nothing
of upstream's checkout lies beside it, so that ``import vllm`` finds the installed
package and not a source tree.

pip prepares the metadata of a source distribution even when it only downloads
it, and upstream's ``setup.py`` imports torch for that. With build isolation that
would be a second torch of several GB; without it, the torch that is installed
will do, and the few other build requirements go to a folder beside the cache.

Run it by itself with ``python -m tests.upstream.fetch``; it prints the folder.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

RELEASE = "0.32.0"
SDIST = f"vllm-{RELEASE}.tar.gz"
SDIST_SHA256 = "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad"

#: What upstream's setup.py imports besides torch, at versions that were tried.
BUILD_REQUIREMENTS = (
    "setuptools==80.9.0",
    "setuptools-rust==1.13.0",
    "setuptools-scm==10.3.4",
    "wheel==0.48.0",
)

#: The names in upstream's pyproject.toml that its tests use as marks.
MARKERS = (
    "core_model",
    "cpu_model",
    "cpu_test",
    "distributed",
    "hybrid_model",
    "optional",
    "skip_global_cleanup",
    "slow_test",
    "split",
)

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / "build" / "upstream-tests"


class FetchError(RuntimeError):
    """The tests could not be fetched; the message is one line for the user."""


def sha256(path: Path) -> str:
    """Hex digest of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    """Runs this interpreter's pip quietly.

    Args:
        arguments: pip's command line.
        environment: variables to add to those of this process.

    Raises:
        FetchError: pip failed; its last line is in the message.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, "--quiet"],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR", "error"))]
        reason = (errors or lines or ["no message"])[-1].strip()
        raise FetchError(f"pip {arguments[0]} failed: {reason}")


def download(cache: Path) -> Path:
    """Downloads the source distribution through pip, unless it is there already.

    Args:
        cache: folder to keep it in.

    Returns:
        The verified archive.

    Raises:
        FetchError: torch is missing, pip failed, or the sha256 differs.
    """
    archive = cache / SDIST
    if not archive.exists():
        if importlib.util.find_spec("torch") is None:
            raise FetchError(
                "upstream's source distribution is prepared with torch, which "
                f"{sys.executable} lacks: run this in the fork's environment"
            )
        requirements = cache / "build-requirements"
        shutil.rmtree(requirements, ignore_errors=True)
        pip("install", "--target", str(requirements), *BUILD_REQUIREMENTS)
        pip(
            "download",
            "--no-deps",
            "--no-binary=vllm",
            "--no-build-isolation",
            f"--dest={cache}",
            f"vllm=={RELEASE}",
            environment={
                "PYTHONPATH": str(requirements),
                "VLLM_TARGET_DEVICE": "empty",
                "VLLM_VERSION_OVERRIDE": RELEASE,
            },
        )
        shutil.rmtree(requirements)
    found = sha256(archive)
    if found != SDIST_SHA256:
        raise FetchError(f"{archive}: sha256 is {found}, expected {SDIST_SHA256}")
    return archive


def unpack(archive: Path, target: Path) -> None:
    """Unpacks ``tests/`` alone, with a pytest.ini beside it.

    A folder under another name is filled and renamed at the end, so that an
    interrupted run leaves nothing that looks complete.
    """
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    prefix = f"vllm-{RELEASE}/"
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith(prefix + "tests/"):
                member.name = member.name.removeprefix(prefix)
                tar.extract(member, partial, filter="data")
    markers = textwrap.indent("\n".join(MARKERS), "    ")
    (partial / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}\n")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def fetch(cache: Path = CACHE) -> Path:
    """Makes upstream's tests available; does nothing when they are.

    Args:
        cache: folder for the archive and what is unpacked from it.

    Returns:
        A folder that holds ``tests/`` and ``pytest.ini``: pytest's root.

    Raises:
        FetchError: see ``download``.
    """
    # The digest is in the name: another release or archive is another folder.
    target = cache / f"{RELEASE}-{SDIST_SHA256[:12]}"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unpack(download(cache), target)
    return target


if __name__ == "__main__":
    try:
        print(fetch())
    except FetchError as error:
        sys.exit(f"tests.upstream.fetch: {error}")
