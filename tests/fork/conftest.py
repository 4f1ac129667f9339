# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Small trees to graft on: the few files of the real release that are edited.

The graft is tested on the real wheel, because only that says whether the edits
hold. It is fetched once and kept (`VLLM_EVICTION_CACHE`).
"""

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fork import upstream
from fork.extension import extension_suffix
from fork.graft import version_file
from fork.series import SERIES

OVERLAY = {
    "vllm/v1/core/eviction/__init__.py": "",
    "vllm/v1/core/eviction/registry.py": "POLICIES = ['lru']\n",
    "vllm/benchmarks/eviction/replay.py": "STEPS = 0\n",
}


@pytest.fixture(scope="session")
def release() -> upstream.Release:
    return upstream.default_release("cpu")


@pytest.fixture(scope="session")
def cpu_wheel(release) -> Path:
    return upstream.fetch(release)


@pytest.fixture(scope="session")
def overlay() -> dict[str, str]:
    """The overlay of `checkout`: sources by path."""
    return OVERLAY


@pytest.fixture
def checkout(tmp_path) -> Path:
    return make_checkout(tmp_path / "checkout")


@pytest.fixture(scope="module")
def module_checkout(tmp_path_factory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("module") / "checkout")


def make_checkout(root: Path) -> Path:
    """A repository with a small overlay, a licence and a requirement."""
    for path, text in OVERLAY.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "LICENSE").write_text("Apache-2.0\n")
    (root / "NOTICE").write_text("the fork\n")
    (root / "requirements").mkdir()
    (root / "requirements" / "common.txt").write_text("# words\nzstandard>=0.22\n")
    return root


@pytest.fixture
def extension(tmp_path) -> Path:
    """Stands for the C++ core: nothing here imports it."""
    file = tmp_path / f"_eviction_C{extension_suffix(Path(sys.executable))}"
    file.write_bytes(b"compiled")
    return file


@pytest.fixture
def site(tmp_path, cpu_wheel) -> Path:
    """A site-packages with the files of the release that the fork edits."""
    folder = tmp_path / "lib" / "site-packages"
    wanted = {p for file in (*SERIES, version_file("")) for p in file.paths}
    with zipfile.ZipFile(cpu_wheel) as wheel:
        for name in wheel.namelist():
            if name in wanted or ".dist-info/" in name or name == "vllm/__init__.py":
                wheel.extract(name, folder)
    cache = folder / "vllm" / "config" / "__pycache__"
    cache.mkdir()
    (cache / "cache.cpython-311.pyc").write_bytes(b"bytecode of upstream's file")
    return folder


Snapshot = dict[str, tuple[bytes, int] | None]


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Path], Snapshot]:
    """Every path of a folder with its bytes and mode; None for a folder."""

    def take(folder: Path) -> Snapshot:
        return {
            path.relative_to(folder).as_posix(): (
                (path.read_bytes(), path.stat().st_mode) if path.is_file() else None
            )
            for path in folder.rglob("*")
        }

    return take
