# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Do the names that an edit reads still exist where it puts its code?

An anchor can outlive a local variable: upstream renames `scheduled_timestamp`, the
anchor beside it still matches, and the fork fails at run time. The compiler's own
symbol table answers it without running anything.
"""

import ast
import builtins
import symtable


def unbound(source: str, scope: str, inserted: str) -> list[str]:
    """Names read by `inserted` that nothing binds in `scope` of the edited source.

    Args:
        source: The file after the edits.
        scope: Dotted name of the class or function, empty for the module.
        inserted: Python source of the edit, as it was given.
    """
    module = symtable.symtable(source, "edited", "exec")
    table = module
    for name in scope.split(".") if scope else []:
        # Several tables can bear one name (an overload): the last one counts.
        table = [t for t in table.get_children() if t.get_name() == name][-1]
    missing = []
    for name in sorted(_names_read(ast.parse(inserted))):
        try:
            symbol = table.lookup(name)
        except KeyError:  # read in a nested function only
            symbol = None
        bound = symbol is not None and (
            symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported()
        )
        if not (bound or _is_global(module, name) or _is_enclosing(symbol)):
            missing.append(name)
    return missing


def _names_read(tree: ast.AST) -> set[str]:
    """Names that the source reads and does not bind itself.

    Nested functions are left out: they have parameters of their own.
    """
    read: set[str] = set()
    bound: set[str] = set()
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
        ):
            queue.extend(getattr(node, "decorator_list", []))
            continue
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        queue.extend(ast.iter_child_nodes(node))
    return read - bound


def _is_global(module: symtable.SymbolTable, name: str) -> bool:
    if hasattr(builtins, name):
        return True
    try:
        symbol = module.lookup(name)
    except KeyError:
        return False
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _is_enclosing(symbol: symtable.Symbol | None) -> bool:
    return symbol is not None and symbol.is_free()
