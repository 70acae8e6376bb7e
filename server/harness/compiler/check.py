"""Whether the code generator may walk a kernel's syntax tree: what it names stays inside Triton's language.

The tree is exactly the one that is compiled afterwards, without decorators, defaults and annotations of the signature.
Names in it mean the function's namespace (made of the plan's data, compiler/extract.py), its own variables, or one of
a few of Python's functions. So it is attributes that lead elsewhere: those that begin at a module are followed,
all others must be ones that Triton's values have. Statements that name variables or attributes in other ways are none
of Triton's, and refused: the interpreter (executor/interpreter.py) would run them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from compiler import names

STATEMENTS: Final = frozenset(
    (
        "AsyncFunctionDef",
        "ClassDef",
        "FunctionDef",
        "Global",
        "Import",
        "ImportFrom",
        "Match",
        "Nonlocal",
        "ParamSpec",
        "Try",
        "TryStar",
        "TypeVar",
        "TypeVarTuple",
    )
)
"""Parts of a syntax tree that have a variable or an attribute as a mere text, where no Name and no Attribute stands.

By name, since some are unknown to older Pythons."""


class CompilerRefusal(Exception):
    """A function that cannot be compiled from its text and the plan's data: which, the candidate's line, and why."""

    def __init__(self, name: str, line: int, what: str) -> None:
        super().__init__(f"line {line}: {name}: {what}")
        self.name = name
        self.line = line
        self.what = what


def _variables(function: ast.FunctionDef) -> set[str]:
    """Names that the text itself gives a meaning."""
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


class _Check(ast.NodeVisitor):
    def __init__(self, function: ast.FunctionDef, namespace: Mapping[str, Any]) -> None:
        self._function = function
        self._namespace = namespace
        self.line = function.lineno

    def visit(self, node: ast.AST) -> None:
        before, self.line = self.line, getattr(node, "lineno", self.line)
        if type(node).__name__ in STATEMENTS and node is not self._function:
            raise names.Unreachable(f"a statement {type(node).__name__}, which Triton's language does not have")
        super().visit(node)
        self.line = before

    def visit_Name(self, node: ast.Name) -> None:
        if node.id.startswith("__"):
            raise names.Unreachable(f"the name {node.id}")
        if names.is_module(self._namespace.get(node.id)):
            raise names.Unreachable(f"{node.id}: a module as a value")
        if node.id in names.LOOKUPS:
            raise names.Unreachable(f"{node.id} that is not called with the name of an attribute")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):  # the interpreter would give Triton's modules other functions
            raise names.Unreachable(f"an assignment to the attribute {node.attr}")
        self._chain(node, [])

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Name) and called.id in names.LOOKUPS:
            self._chain(node, [])
        else:
            self.visit(called)
            self._arguments(node.args, node.keywords)

    def _arguments(self, args: list[ast.expr], keywords: list[ast.keyword]) -> None:
        for argument in args:
            self.visit(argument)
        for keyword in keywords:
            if keyword.arg is not None and keyword.arg.startswith("_"):
                raise names.Unreachable(f"the argument {keyword.arg}")
            self.visit(keyword.value)

    def _chain(self, node: ast.expr, attributes: list[str]) -> None:
        """A chain of attributes from its end: the node's own come before those that are known."""
        while True:
            if isinstance(node, ast.Attribute):
                attributes = [node.attr, *attributes]
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names.LOOKUPS:
                attributes = [self._looked_up(node), *attributes]
                self._arguments(node.args[2:], node.keywords)
                node = node.args[0]
            else:
                break
        found = self._namespace.get(node.id) if isinstance(node, ast.Name) else None
        if names.is_module(found):
            assert isinstance(node, ast.Name)
            names.follow(found, attributes, node.id)
            return
        self.visit(node)
        for attribute in attributes:
            names.value_attribute(attribute)

    def _looked_up(self, node: ast.Call) -> str:
        """The attribute that getattr or hasattr is asked for."""
        literal = node.args[1] if len(node.args) > 1 else None
        if not isinstance(literal, ast.Constant) or not isinstance(literal.value, str):
            raise names.Unreachable("getattr or hasattr without the name of an attribute")
        if isinstance(node.args[0], ast.Starred):
            raise names.Unreachable("getattr or hasattr of arguments that are unpacked")
        return literal.value


def check(function: ast.FunctionDef, namespace: Mapping[str, Any], first_line: int) -> None:
    """CompilerRefusal, with the candidate's line, if the text uses something outside of Triton's language.

    function    the tree that will be compiled; its own lines begin at 1
    namespace   the meaning of its names other than its variables
    first_line  of its `def` in the source
    """
    checker = _Check(function, namespace)
    try:
        for name in sorted(_variables(function)):
            if names.is_module(namespace.get(name)) or name in names.LOOKUPS:
                raise names.Unreachable(f"the variable {name}, which is a module or a function elsewhere")
        checker.visit(function)
    except names.Unreachable as error:
        raise CompilerRefusal(function.name, first_line + checker.line - 1, str(error)) from None
    except RecursionError:
        raise CompilerRefusal(function.name, first_line, "its text is nested too deep") from None
