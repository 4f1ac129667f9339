# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The vocabulary of edits: what the fork may do to a file of upstream's.

An edit says where by names alone: the scope (`Scheduler.schedule`) and, in it, a
name that is assigned, called or defined. Names are what upstream's own callers
depend on, so they outlive the lines around them: a reformatted, moved or
lengthened function still takes the edit, while a patch with context lines would
have to be made again for every release. It also keeps upstream's text out of this
repository.

An anchor that matches twice is as wrong as one that is gone, so every edit must
match exactly once, or `AnchorError` says what was looked for and where.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from fork.anchors import (
    Anchor,
    AnchorError,
    Block,
    Blocks,
    OwnCode,
    assignment,
    called,
    dotted,
    edit_scope,
    is_docstring,
    only_small,
    parse_block,
)


@dataclass(frozen=True)
class Edit(ABC):
    """One change to one file.

    Attributes:
        name: What the edit is for, unique in its file.
        scope: Dotted name of the class or function; empty for the module.
    """

    name: str
    scope: str

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What the edit looks for, in words."""

    @property
    def inserted(self) -> str:
        """Python source that the edit brings in; the names it reads are checked."""
        return getattr(self, "code", "")

    @abstractmethod
    def change(self, node):
        """Returns (number of matches, the changed scope)."""

    def apply(self, module: cst.Module) -> cst.Module:
        """Raises AnchorError unless the anchor is there exactly once."""

        def change(node):
            matches, changed = self.change(node)
            if matches != 1:
                raise AnchorError(f"{self.wanted}: found {matches} times, not once")
            return changed

        return edit_scope(module, self.scope, change)


@dataclass(frozen=True)
class _Insert(Edit):
    anchor: Anchor
    code: str

    @property
    def wanted(self) -> str:
        return str(self.anchor)

    def change(self, node):
        visitor = Blocks(self.anchor, self.rewrite)
        changed = node.visit(visitor)
        return visitor.matches, changed

    @abstractmethod
    def rewrite(self, body: Block, index: int) -> Block: ...


@dataclass(frozen=True)
class InsertAfter(_Insert):
    """Statements after the anchor, in its block."""

    def rewrite(self, body: Block, index: int) -> Block:
        return body[: index + 1] + parse_block(self.code) + body[index + 1 :]


@dataclass(frozen=True)
class InsertBefore(_Insert):
    """Statements before the anchor, in its block."""

    def rewrite(self, body: Block, index: int) -> Block:
        return body[:index] + parse_block(self.code) + body[index:]


@dataclass(frozen=True)
class InsertFirstIn(_Insert):
    """Statements at the start of the block that the anchor opens."""

    def rewrite(self, body: Block, index: int) -> Block:
        opener = body[index]
        assert isinstance(opener, cst.If)
        block = opener.body
        inner = block.with_changes(body=[*parse_block(self.code), *block.body])
        return [*body[:index], opener.with_changes(body=inner), *body[index + 1 :]]


@dataclass(frozen=True)
class AddFields(_Insert):
    """Fields of a class after a named field and its docstring."""

    def rewrite(self, body: Block, index: int) -> Block:
        index += 1
        if index < len(body) and is_docstring(body[index]):
            index += 1
        return body[:index] + parse_block(self.code) + body[index:]


@dataclass(frozen=True)
class InsertFirst(Edit):
    """Statements at the start of a function, after its docstring.

    A blank line at the end of the code is kept.
    """

    code: str

    @property
    def wanted(self) -> str:
        return "the body of the function"

    def change(self, node):
        if not isinstance(node.body, cst.IndentedBlock):
            return 0, node
        body: Block = [*node.body.body]  # type: ignore[list-item]
        at = 1 if body and is_docstring(body[0]) else 0
        if self.code.endswith("\n\n") and at < len(body):
            lines = [cst.EmptyLine(indent=False), *body[at].leading_lines]
            body[at] = body[at].with_changes(leading_lines=lines)
        body[at:at] = parse_block(self.code)
        return 1, node.with_changes(body=node.body.with_changes(body=body))


@dataclass(frozen=True)
class AddImport(Edit):
    """`from PACKAGE... import NAMES`, sorted in among those of the same package."""

    module: str
    names: tuple[str, ...]
    scope: str = field(default="", kw_only=True)

    @property
    def wanted(self) -> str:
        return f"top-level imports from `{self.module.split('.')[0]}`"

    def change(self, node):
        statement = f"from {self.module} import {', '.join(self.names)}"
        if len(statement) > 88:
            lines = "".join(f"    {name},\n" for name in self.names)
            statement = f"from {self.module} import (\n{lines})"
        package = self.module.split(".")[0]
        body = list(node.body)
        imports = {}
        for index, child in enumerate(body):
            small = only_small(child)
            if isinstance(small, cst.ImportFrom) and small.module is not None:
                imports[index] = dotted(small.module)
        own = {i: m for i, m in imports.items() if m.split(".")[0] == package}
        if not own:
            return 0, node
        earlier = [index for index, module in own.items() if module < self.module]
        # Sorting before all others would mean to move their blank lines; the
        # second place is good enough for a case that the series does not have.
        at = max(earlier) if earlier else min(own)
        body[at + 1 : at + 1] = parse_block(statement)
        return 1, node.with_changes(body=body)


class _Calls(OwnCode):
    def __init__(self, function: str, rewrite: Callable[[cst.Call], cst.Call]) -> None:
        super().__init__()
        self.function, self.rewrite = function, rewrite

    def leave_Call(self, original_node, updated_node):
        if called(original_node) != self.function:
            return updated_node
        self.matches += 1
        return self.rewrite(updated_node)


@dataclass(frozen=True)
class AddKeywords(Edit):
    """Keyword arguments at the end of the one call of `function` in the scope."""

    function: str
    keywords: dict[str, str]

    @property
    def inserted(self) -> str:
        return "\n".join(f"({value})" for value in self.keywords.values())

    @property
    def wanted(self) -> str:
        return f"a call of `{self.function}`"

    def change(self, node):
        visitor = _Calls(self.function, self._extend)
        changed = node.visit(visitor)
        return visitor.matches, changed

    def _extend(self, node: cst.Call) -> cst.Call:
        layout = _Layout(node.whitespace_before_args, node.args)
        added = []
        for keyword, value in self.keywords.items():
            # An expression over several lines is written flush left.
            text = value.replace("\n", f"\n{layout.indent}")
            added.append(
                cst.Arg(
                    keyword=cst.Name(keyword),
                    value=cst.parse_expression(text),
                    equal=cst.AssignEqual(
                        cst.SimpleWhitespace(""), cst.SimpleWhitespace("")
                    ),
                )
            )
        return node.with_changes(args=layout.append(node.args, added))


@dataclass(frozen=True)
class AddElements(Edit):
    """String elements at the end of the set literal assigned to `target`."""

    target: str
    elements: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return f"an assignment of a set literal to `{self.target}`"

    def change(self, node):
        visitor = Blocks(
            Anchor(self.wanted, self._matches),
            lambda body, i: [*body[:i], self._extend(body[i]), *body[i + 1 :]],
        )
        changed = node.visit(visitor)
        return visitor.matches, changed

    def _matches(self, statement: cst.CSTNode) -> bool:
        small = only_small(statement)
        return assignment(self.target).matches(statement) and isinstance(
            small.value,  # type: ignore[union-attr]
            cst.Set,
        )

    def _extend(self, statement):
        small = statement.body[0]
        literal = small.value
        layout = _Layout(literal.lbrace.whitespace_after, literal.elements)
        added = [cst.Element(cst.SimpleString(f'"{name}"')) for name in self.elements]
        literal = literal.with_changes(elements=layout.append(literal.elements, added))
        return statement.with_changes(body=[small.with_changes(value=literal)])


@dataclass(frozen=True)
class WrapReturn(Edit):
    """`return f(value)` for `return value`, the only return of the function."""

    function: str

    @property
    def inserted(self) -> str:
        return self.function

    @property
    def wanted(self) -> str:
        return "a return statement with a value"

    def change(self, node):
        function = self.function

        class Returns(OwnCode):
            def leave_Return(self, original_node, updated_node):
                if updated_node.value is None:
                    return updated_node
                self.matches += 1
                wrapped = cst.Call(
                    cst.parse_expression(function), [cst.Arg(updated_node.value)]
                )
                return updated_node.with_changes(value=wrapped)

        visitor = Returns()
        changed = node.visit(visitor)
        return visitor.matches, changed


@dataclass(frozen=True)
class SetString(Edit):
    """Another string literal in the assignment to `target`."""

    target: str
    value: str

    @property
    def wanted(self) -> str:
        return f"an assignment of a string to `{self.target}`"

    def change(self, node):
        def matches(statement: cst.CSTNode) -> bool:
            small = only_small(statement)
            return assignment(self.target).matches(statement) and isinstance(
                small.value,  # type: ignore[union-attr]
                cst.SimpleString,
            )

        def rewrite(body, index):
            small = body[index].body[0]
            new = small.with_changes(value=cst.SimpleString(repr(self.value)))
            body[index] = body[index].with_changes(body=[new])
            return body

        visitor = Blocks(Anchor(self.wanted, matches), rewrite)
        changed = node.visit(visitor)
        return visitor.matches, changed


class _Layout:
    """How the items of a call or a set are laid out: on one line, or a line each."""

    def __init__(self, opening, items: Sequence) -> None:
        # Only the indentation is taken: the blank space between two items can hold
        # comments, which must not be written twice.
        self.one_line = not isinstance(opening, cst.ParenthesizedWhitespace)
        self.indent = "" if self.one_line else opening.last_line.value

    def separator(self) -> cst.Comma:
        if self.one_line:
            return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return cst.Comma(
            whitespace_after=cst.ParenthesizedWhitespace(
                indent=True, last_line=cst.SimpleWhitespace(self.indent)
            )
        )

    def append(self, items: Sequence, added: list) -> list:
        """`items` and `added`; the last one ends as the last of `items` did."""
        if not items:
            everything, end = list(added), cst.MaybeSentinel.DEFAULT
        else:
            end = items[-1].comma
            everything = [*items[:-1], items[-1], *added]
        first_open = max(len(items) - 1, 0)
        for i in range(first_open, len(everything) - 1):
            everything[i] = everything[i].with_changes(comma=self.separator())
        everything[-1] = everything[-1].with_changes(comma=end)
        return everything
