# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Where an edit takes hold: scopes and anchors, found by name.

Names are what upstream's own callers depend on, so they outlive the lines around
them. Only the scope that an edit names is walked: a traversal of a whole file for
each edit would take minutes for the series, and a name would match in places that
the edit was not written for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

# Both kinds of statement have leading lines, their base class has not.
Block = list[cst.SimpleStatementLine | cst.BaseCompoundStatement]
Definition = cst.ClassDef | cst.FunctionDef


class AnchorError(Exception):
    """An edit did not find the one place that it is for."""


def dotted(node: cst.CSTNode) -> str:
    """`self.x.y` as text; empty for what is not a plain chain of names."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr.value}"
    return ""


def called(node: cst.CSTNode | None) -> str:
    return dotted(node.func) if isinstance(node, cst.Call) else ""


def only_small(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return statement.body[0]
    return None


def is_docstring(statement: cst.CSTNode) -> bool:
    small = only_small(statement)
    return isinstance(small, cst.Expr) and isinstance(
        small.value, cst.SimpleString | cst.ConcatenatedString
    )


def parse_block(code: str) -> Block:
    """Statements of `code`; blank lines and comments before the first one stay."""
    # Blank lines at the very start would belong to the module, not to the first
    # statement: the throw-away `pass` takes that place.
    block: Block = []
    for statement in cst.parse_module(f"pass\n{code}").body[1:]:
        lines = [
            line if line.comment else cst.EmptyLine(indent=False)
            for line in statement.leading_lines
        ]
        block.append(statement.with_changes(leading_lines=lines))
    return block


# --- Anchors: which statement ------------------------------------------------


@dataclass(frozen=True)
class Anchor:
    text: str
    matches: Callable[[cst.CSTNode], bool]

    def __str__(self) -> str:
        return self.text


def assignment(target: str, calling: str = "") -> Anchor:
    """The statement that assigns to `target` (from a call of `calling`)."""

    def matches(statement: cst.CSTNode) -> bool:
        small = only_small(statement)
        if isinstance(small, cst.Assign):
            targets = [dotted(t.target) for t in small.targets]
        elif isinstance(small, cst.AnnAssign):
            targets = [dotted(small.target)]
        else:
            return False
        return target in targets and calling in ("", called(small.value))

    source = f" from a call of `{calling}`" if calling else ""
    return Anchor(f"an assignment to `{target}`{source}", matches)


def call(function: str) -> Anchor:
    """The statement that is a call of `function` and nothing else."""

    def matches(statement: cst.CSTNode) -> bool:
        small = only_small(statement)
        return isinstance(small, cst.Expr) and called(small.value) == function

    return Anchor(f"a statement that calls `{function}`", matches)


def definition(name: str) -> Anchor:
    def matches(statement: cst.CSTNode) -> bool:
        return isinstance(statement, Definition) and statement.name.value == name

    return Anchor(f"the definition of `{name}`", matches)


def not_none_test(name: str) -> Anchor:
    """`if NAME is not None:`."""

    def matches(statement: cst.CSTNode) -> bool:
        if not isinstance(statement, cst.If):
            return False
        test = statement.test
        return (
            isinstance(test, cst.Comparison)
            and len(test.comparisons) == 1
            and isinstance(test.comparisons[0].operator, cst.IsNot)
            and dotted(test.comparisons[0].comparator) == "None"
            and dotted(test.left) == name
        )

    return Anchor(f"`if {name} is not None`", matches)


# --- Scope -------------------------------------------------------------------


def edit_scope(
    module: cst.Module,
    scope: str,
    change: Callable[[cst.Module | Definition], cst.Module | Definition],
) -> cst.Module:
    """Replaces the class or function that `scope` names by `change` of it.

    Raises:
        AnchorError: no definition of that name, or several.
    """

    def descend(node, names: list[str]):
        if not names:
            return change(node)
        block = node if isinstance(node, cst.Module) else node.body
        found = [
            (i, child)
            for i, child in enumerate(block.body)
            if isinstance(child, Definition) and child.name.value == names[0]
        ]
        if len(found) != 1:
            raise AnchorError(f"`{names[0]}` is defined {len(found)} times, not once")
        index, child = found[0]
        body = list(block.body)
        body[index] = descend(child, names[1:])
        new_block = block.with_changes(body=body)
        if isinstance(node, cst.Module):
            return new_block
        return node.with_changes(body=new_block)

    return descend(module, scope.split(".") if scope else [])


class OwnCode(cst.CSTTransformer):
    """Visits a scope's own code, not the functions and classes defined in it."""

    def __init__(self) -> None:
        self.depth = 0
        self.matches = 0

    def visit_Module(self, node: cst.Module) -> None:
        self.depth += 1

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.depth += 1
        return self.depth == 1

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self.depth += 1
        return self.depth == 1

    def leave_FunctionDef(self, original_node, updated_node):
        self.depth -= 1
        return updated_node

    def leave_ClassDef(self, original_node, updated_node):
        self.depth -= 1
        return updated_node


class Blocks(OwnCode):
    """Rewrites around each statement of the scope that an anchor matches."""

    def __init__(self, anchor: Anchor, rewrite: Callable[[Block, int], Block]) -> None:
        super().__init__()
        self.anchor, self.rewrite = anchor, rewrite

    def _leave_block(self, updated_node):
        body = list(updated_node.body)
        for index in reversed(range(len(body))):
            if self.anchor.matches(body[index]):
                self.matches += 1
                body = self.rewrite(body, index)
        return updated_node.with_changes(body=body)

    def leave_IndentedBlock(self, original_node, updated_node):
        return self._leave_block(updated_node)

    def leave_Module(self, original_node, updated_node):
        return self._leave_block(updated_node)
