# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The repacked wheel: complete, rightly named, and gone after an uninstall."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fork import develop, record, wheel
from fork.extension import python_tags
from fork.overlay import overlay_files


@pytest.fixture(scope="module")
def module_tmp(tmp_path_factory):
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def built(module_tmp, module_checkout, cpu_wheel, release):
    """The wheel of a small checkout, built once."""
    module = module_tmp / "_eviction_C.cpython-311-x86_64-linux-gnu.so"
    module.write_bytes(b"compiled")
    return wheel.build_wheel(
        release, cpu_wheel, module, module_tmp / "dist", module_checkout
    )


@pytest.fixture(scope="module")
def archive(built):
    with zipfile.ZipFile(built) as archive:
        yield archive


INFO = "vllm-0.32.0+eviction1.cpu.dist-info"


def test_the_file_name_says_fork_interpreter_and_platform(built):
    assert built.name == (
        "vllm-0.32.0+eviction1.cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    )


@pytest.mark.parametrize(
    ("module", "tags"),
    [
        ("_eviction_C.cpython-311-x86_64-linux-gnu.so", ("cp311", "cp311")),
        ("_eviction_C.cpython-312-aarch64-linux-gnu.so", ("cp312", "cp312")),
        ("_eviction_C.abi3.so", ("cp312", "abi3")),
    ],
)
def test_the_extension_decides_the_interpreter(module, tags):
    assert python_tags(Path(module)) == tags


def test_record_is_complete_and_right(archive):
    rows = record.parse(archive.read(f"{INFO}/RECORD"))
    names = archive.namelist()
    assert sorted(rows) == sorted(names)
    assert len(names) == len(set(names))
    assert archive.testzip() is None
    for name in names:
        if name != f"{INFO}/RECORD":
            assert rows[name] == record.row(name, archive.read(name)), name


def test_metadata_and_tag(archive):
    metadata = archive.read(f"{INFO}/METADATA").decode()
    head = metadata.split("\n\n")[0].split("\n")
    assert "Name: vllm" in head
    assert "Version: 0.32.0+eviction1.cpu" in head
    assert "License-File: eviction-fork/NOTICE" in head
    assert "Requires-Dist: zstandard>=0.22" in head
    assert any(line.startswith("Requires-Dist: torch==") for line in head)
    for unneeded in ("torchaudio", "torchvision", "torchcodec"):
        assert not any(line.startswith(f"Requires-Dist: {unneeded}") for line in head)
    assert "not published by the vLLM project" in metadata
    assert f"{INFO}/licenses/eviction-fork/NOTICE" in archive.namelist()
    tags = [
        line
        for line in archive.read(f"{INFO}/WHEEL").decode().split("\n")
        if line.startswith("Tag:")
    ]
    assert tags == ["Tag: cp311-cp311-manylinux_2_28_x86_64"]


def test_a_cuda_build_keeps_what_upstream_needs():
    text = "Name: vllm\nVersion: 0.33.0\nRequires-Dist: torchvision==1\n\nwords"
    edited = wheel.edit_metadata(text, "0.33.0+eviction1", "cuda", [], []).decode()
    assert "Requires-Dist: torchvision==1" in edited


def test_the_version_is_in_the_package_and_the_tuple_stays_numeric(archive):
    scope: dict = {}
    exec(archive.read("vllm/_version.py"), scope)
    assert scope["__version__"] == scope["version"] == "0.32.0+eviction1.cpu"
    assert scope["__version_tuple__"] == (0, 32, 0)


def test_unchanged_members_are_upstreams_compressed_bytes(archive, cpu_wheel):
    with zipfile.ZipFile(cpu_wheel) as upstream:
        name = max(upstream.infolist(), key=lambda i: i.file_size).filename
        before, after = upstream.getinfo(name), archive.getinfo(name)
    for field in ("CRC", "compress_size", "file_size", "external_attr", "date_time"):
        assert getattr(before, field) == getattr(after, field)


def test_executables_stay_executable_and_the_extension_is(archive, cpu_wheel):
    def executables(file):
        return {i.filename for i in file.infolist() if i.external_attr >> 16 & 0o111}

    with zipfile.ZipFile(cpu_wheel) as upstream:
        ours = executables(archive) - executables(upstream)
        assert not executables(upstream) - executables(archive)
    assert ours == {"vllm/_eviction_C.cpython-311-x86_64-linux-gnu.so"}


def test_the_same_inputs_give_the_same_bytes(
    built, cpu_wheel, release, module_tmp, module_checkout
):
    again = wheel.build_wheel(
        release,
        cpu_wheel,
        module_tmp / "_eviction_C.cpython-311-x86_64-linux-gnu.so",
        module_tmp / "again",
        module_checkout,
    )
    assert again.read_bytes() == built.read_bytes()


@pytest.fixture(scope="module")
def environment(module_tmp, built):
    """An environment of its own with the wheel in it, without dependencies."""
    folder = module_tmp / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder, folder / "lib" / version / "site-packages"


def pip(folder: Path, *arguments) -> None:
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    subprocess.run([*command, *arguments, "-q"], check=True, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the wheel is cp311")
def test_uninstall_leaves_nothing_and_does_not_touch_the_repository(
    environment, built, module_tmp, module_checkout
):
    folder, site = environment
    root = module_checkout
    pip(folder, "install", "--no-deps", "--no-compile", built)
    module = module_tmp / "_eviction_C.cpython-311-x86_64-linux-gnu.so"

    # As develop leaves it: links, one of them dropped again, one new, bytecode.
    extra = root / "vllm/benchmarks/eviction/deeper/extra.py"
    extra.parent.mkdir()
    extra.write_text("")
    develop.link(module, root, site)
    registry = site / "vllm/v1/core/eviction/registry.py"
    assert registry.is_symlink() and registry.resolve().is_relative_to(root)
    assert (site / "vllm" / module.name).resolve() == module.resolve()
    assert (site / extra.relative_to(root)).is_symlink()
    extra.unlink()
    extra.parent.rmdir()
    new = root / "vllm/v1/core/eviction/new.py"
    new.write_text("NEW = 1\n")
    develop.link(module, root, site)
    assert not os.path.lexists(site / extra.parent.relative_to(root))
    # vllm itself wants its dependencies; a bare package leads to the file as well.
    code = (
        "import sys, types; package = types.ModuleType('vllm'); "
        f"package.__path__ = [{str(site / 'vllm')!r}]; "
        "sys.modules['vllm'] = package; import vllm.v1.core.eviction.new"
    )
    environ = os.environ | {"PYTHONPATH": ""}
    subprocess.run(
        [
            folder / "bin" / "python",
            "-c",
            code,
        ],
        check=True,
        env=environ,
        cwd=folder,
    )
    assert list(new.parent.glob("__pycache__")) == []

    repository = {path: file.read_bytes() for path, file in overlay_files(root).items()}
    pip(folder, "uninstall", "-y", "vllm")
    assert list(site.iterdir()) == []
    assert not (folder / "bin" / "vllm").exists()
    assert repository == {
        path: file.read_bytes() for path, file in overlay_files(root).items()
    }
