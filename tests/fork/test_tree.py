# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The series on a tree: one path of several, outcomes that say what is wrong."""

import pytest

from fork import ForkError
from fork.anchors import assignment, call
from fork.edits import InsertAfter
from fork.tree import NOTICE, EditedFile, edit_tree

SOURCE = b"# SPDX-License-Identifier: Apache-2.0\n\ndef f(a):\n    go()\n    return a\n"


def tree(**files: bytes):
    return {name.replace("_", "/") + ".py": data for name, data in files.items()}.get


def insert(code: str, anchor=None) -> InsertAfter:
    return InsertAfter("an edit", "f", anchor or call("go"), code)


def test_a_file_is_found_where_the_release_has_it():
    file = EditedFile(("old/x.py", "new/x.py"), (insert("a = 2\n"),))
    for place in ("old_x", "new_x"):
        result = edit_tree(tree(**{place: SOURCE}), [file]).require()
        assert list(result.files) == [place.replace("_", "/") + ".py"]


@pytest.mark.parametrize("files", [{}, {"old_x": SOURCE, "new_x": SOURCE}])
def test_a_file_that_is_nowhere_or_twice_fails_all_its_edits(files):
    file = EditedFile(("old/x.py", "new/x.py"), (insert("a = 2\n"),))
    result = edit_tree(tree(**files), [file])
    assert not result.files
    with pytest.raises(ForkError, match="old/x.py or new/x.py: found"):
        result.require()


def test_a_missing_anchor_names_edit_file_scope_and_what_was_looked_for():
    file = EditedFile(("x.py",), (insert("b()\n", assignment("self.gone")),))
    with pytest.raises(ForkError) as error:
        edit_tree(tree(x=SOURCE), [file]).require()
    assert str(error.value) == (
        "edit 'an edit' of x.py, in f: an assignment to `self.gone`: "
        "found 0 times, not once"
    )


def test_every_failure_is_reported_at_once():
    file = EditedFile(
        ("x.py",), (insert("b()\n", call("p")), insert("b()\n", call("q")))
    )
    assert len(edit_tree(tree(x=SOURCE), [file]).failures) == 2


@pytest.mark.parametrize("code", ["use(renamed)\n", "a = [renamed for _ in a]\n"])
def test_a_name_that_upstream_no_longer_has_is_a_failure(code):
    result = edit_tree(
        tree(x=b"use = 1\n" + SOURCE), [EditedFile(("x.py",), (insert(code),))]
    )
    (failure,) = result.failures
    assert "reads `renamed`" in str(failure)


@pytest.mark.parametrize(
    "code",
    ["len(a)\n", "b = [x for x in a]\n", "late = f\nlate(a)\n", "import m\n\nm.x()\n"],
)
def test_parameters_locals_globals_and_builtins_are_known(code):
    edit_tree(tree(x=SOURCE), [EditedFile(("x.py",), (insert(code),))]).require()


def test_the_change_notice_stands_below_the_licence_header():
    file = EditedFile(("x.py",), (insert("a = 2\n"),))
    _, after = edit_tree(tree(x=SOURCE), [file]).files["x.py"]
    assert after.decode().split("\n")[1] == NOTICE
    _, after = edit_tree(tree(x=SOURCE), [file], notice=False).files["x.py"]
    assert NOTICE not in after.decode()
