# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Each word of the vocabulary on a source of a few lines: the whole result."""

from textwrap import dedent

import libcst as cst
import pytest

from fork.anchors import AnchorError, assignment, call, definition, not_none_test
from fork.edits import (
    AddElements,
    AddFields,
    AddImport,
    AddKeywords,
    InsertAfter,
    InsertBefore,
    InsertFirst,
    InsertFirstIn,
    SetString,
    WrapReturn,
)


def edited(edit, source: str) -> str:
    return edit.apply(cst.parse_module(dedent(source).lstrip())).code


def is_now(edit, before: str, after: str) -> None:
    assert edited(edit, before) == dedent(after).lstrip()


def test_insert_after_keeps_the_nesting_of_the_anchor():
    is_now(
        InsertAfter(
            "e", "Queue.step", call("self.pool.tick"), "if self.on:\n    go()\n"
        ),
        """
        class Queue:
            def step(self):
                for item in self:
                    if item:
                        self.pool.tick()  # why
                    done()
        """,
        """
        class Queue:
            def step(self):
                for item in self:
                    if item:
                        self.pool.tick()  # why
                        if self.on:
                            go()
                    done()
        """,
    )


def test_insert_before_leaves_the_anchor_where_it_was():
    is_now(
        InsertBefore("e", "f", call("free"), "note()\n"),
        """
        def f():
            x = 1
            free(x)
            return x
        """,
        """
        def f():
            x = 1
            note()
            free(x)
            return x
        """,
    )


def test_a_method_is_inserted_with_a_blank_line():
    method = "\n@decorated\ndef new(self):\n    import late\n\n    return late\n"
    is_now(
        InsertAfter("e", "C", definition("old"), method),
        """
        class C:
            def old(self):
                return 1

            x: int = 2
        """,
        """
        class C:
            def old(self):
                return 1

            @decorated
            def new(self):
                import late

                return late

            x: int = 2
        """,
    )


def test_fields_go_after_the_docstring_of_the_field_before():
    is_now(
        AddFields("e", "C", assignment("a"), 'c: int = 3\n"""Third."""\n'),
        '''
        class C:
            a: int = 1
            """First,
            at length."""
            b: int = 2
        ''',
        '''
        class C:
            a: int = 1
            """First,
            at length."""
            c: int = 3
            """Third."""
            b: int = 2
        ''',
    )


def test_fields_go_after_a_field_without_a_docstring():
    is_now(
        AddFields("e", "C", assignment("a"), "c: int = 3\n"),
        "class C:\n    a: int = 1\n    b: int = 2\n",
        "class C:\n    a: int = 1\n    c: int = 3\n    b: int = 2\n",
    )


def test_insert_first_stands_after_the_docstring():
    is_now(
        InsertFirst("e", "f", "import late\n\n"),
        '''
        def f():
            """Words."""
            # about the return
            return 1
        ''',
        '''
        def f():
            """Words."""
            import late

            # about the return
            return 1
        ''',
    )


def test_insert_first_in_a_test_for_none():
    is_now(
        InsertFirstIn("e", "f", not_none_test("stats"), "observe(stats)\n"),
        """
        def f(stats, other):
            if other is not None:
                pass
            if stats is not None:
                # counts
                use(stats)
        """,
        """
        def f(stats, other):
            if other is not None:
                pass
            if stats is not None:
                observe(stats)
                # counts
                use(stats)
        """,
    )


def test_keywords_follow_the_layout_of_the_call():
    keywords = AddKeywords("e", "f", "Stats", {"c": "(\n    x if y else None\n)"})
    is_now(
        keywords,
        """
        def f():
            return Stats(
                a=1,  # one
                # two
                b=2,
            )
        """,
        """
        def f():
            return Stats(
                a=1,  # one
                # two
                b=2,
                c=(
                    x if y else None
                ),
            )
        """,
    )
    one_line = AddKeywords("e", "f", "Stats", {"c": "3", "d": "4"})
    is_now(
        one_line,
        "def f():\n    return Stats(a, b=2)\n",
        "def f():\n    return Stats(a, b=2, c=3, d=4)\n",
    )
    is_now(
        one_line,
        "def f():\n    return Stats()\n",
        "def f():\n    return Stats(c=3, d=4)\n",
    )


def test_elements_follow_the_layout_of_the_set():
    is_now(
        AddElements("e", "f", "ignored", ("c", "d")),
        """
        def f():
            ignored = {
                "a",
                # about b
                "b",
            }
        """,
        """
        def f():
            ignored = {
                "a",
                # about b
                "b",
                "c",
                "d",
            }
        """,
    )


def test_the_value_returned_is_wrapped():
    is_now(
        WrapReturn("e", "f", "public"),
        """
        def f():
            def inner():
                return 0
            return {1: 2}
        """,
        """
        def f():
            def inner():
                return 0
            return public({1: 2})
        """,
    )


def test_an_import_is_sorted_in_among_those_of_its_package():
    is_now(
        AddImport("e", "vllm.v1.eviction", ("attach",)),
        """
        import os

        from other.z import a
        from vllm.logger import b
        from vllm.v1.core import (
            c,
        )
        from vllm.v1.zebra import d

        x = 1
        """,
        """
        import os

        from other.z import a
        from vllm.logger import b
        from vllm.v1.core import (
            c,
        )
        from vllm.v1.eviction import attach
        from vllm.v1.zebra import d

        x = 1
        """,
    )


def test_a_string_is_replaced_in_a_chained_assignment():
    is_now(
        SetString("e", "", "__version__", "1+x"),
        "version: str\n__version__ = version = '1'\n",
        "version: str\n__version__ = version = '1+x'\n",
    )


def test_an_assignment_can_be_told_by_the_call_that_it_is_from():
    after = edited(
        InsertAfter("e", "f", assignment("ok", calling="self.reset"), "new()\n"),
        "def f(self):\n    ok = self.reset()\n    ok = self.other() and ok\n",
    )
    assert after.splitlines()[1:3] == ["    ok = self.reset()", "    new()"]


def test_what_is_not_edited_stays_byte_for_byte():
    source = "# words\r\nx = {  'a':1 }\r\ndef f( ):\r\n    go()\r\n\r\n\r\n"
    module = cst.parse_module(source.encode())
    after = InsertAfter("e", "f", call("go"), "on()\n").apply(module).bytes.decode()
    assert after == source.replace("    go()\r\n", "    go()\r\n    on()\r\n")


@pytest.mark.parametrize(
    ("source", "times"),
    [
        ("def f():\n    other()\n", 0),
        ("def f():\n    go()\n    if x:\n        go()\n", 2),
        # A nested function is another scope.
        ("def f():\n    def g():\n        go()\n", 0),
        # A call that is only part of a statement is another anchor.
        ("def f():\n    y = go()\n", 0),
    ],
)
def test_an_anchor_that_is_not_there_once_is_an_error(source, times):
    with pytest.raises(AnchorError, match=f"calls .go.: found {times} times"):
        edited(InsertAfter("e", "f", call("go"), "on()\n"), source)


@pytest.mark.parametrize("source", ["x = 1\n", "def f(): ...\ndef f():\n    go()\n"])
def test_a_scope_that_is_not_defined_once_is_an_error(source):
    with pytest.raises(AnchorError, match="f.* is defined [02] times"):
        edited(InsertAfter("e", "f", call("go"), "on()\n"), source)
