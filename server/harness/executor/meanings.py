"""A kernel's text for Triton's interpreter, where Python means another thing than Triton's code generator.

Of blocks, Python's `and`, `or` and `not` ask for one truth value; the code generator takes them element by element. And
the interpreter hands a type or a number to an inner function as it is, where the code generator hands over a constexpr.
Nor are the classes of values the same: a tuple is Triton's own for the code generator, and a number, such as a loop's,
may be a tensor. A kernel that asks for a class or an attribute could be another one when it is compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

import triton.language as tl
from triton.runtime import interpreter


class Meanings(interpreter.ASTTransformer):
    """Changes a tree, which was checked before, so that names of FUNCTIONS stand in it."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        return super().visit_Assign(self.generic_visit(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.Call:
        self.generic_visit(node)
        name = "__all" if isinstance(node.op, ast.And) else "__any"
        return _call(node, name, *(ast.Lambda(_NOTHING, value) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call(node, "__not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        return _call(node, "__is" if isinstance(node.ops[0], ast.Is) else "__is_not", node.left, *node.comparators)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_read = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return _call(node, "__plain", node.value) if is_read else node


_NOTHING: Final = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _call(node: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(args), []), node)


def _joined(method: str, decides: bool) -> Callable[..., Any]:
    """`and` or `or` as the code generator has it: of what it knows only what decides, of tensors all."""

    def joined(*parts: Callable[[], Any]) -> Any:
        found: list[Any] = []
        value: Any = None
        for part in parts:
            value = part()
            if isinstance(value, tl.tensor):
                found.append(value)
            elif bool(value) is decides:
                return value
        result = found.pop() if found else value
        while found:
            result = getattr(found.pop(), method)(result, _semantic=interpreter.interpreter_semantic)
        return result

    return joined


def _not(value: Any) -> Any:
    return value.__not__(_semantic=interpreter.interpreter_semantic) if isinstance(value, tl.tensor) else not value


def _plain(value: Any) -> Any:
    return value if isinstance(value, tl.dtype | bool | int | float | str | None) else value.value


class Unavailable(Exception):
    """A thing that the interpreter lacks, in a sentence. The candidate may well be right."""


_TUPLE: Final = tl.tuple([])


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _as_compiled(value: Any, what: str) -> Any:
    """What the code generator would ask about. Unavailable: a number, since that may be a constant or a tensor."""
    value = _unwrapped(value)
    if isinstance(value, bool | int | float):
        raise Unavailable(f"{what} of a number is not available without a GPU")
    return _TUPLE if isinstance(value, tuple | list) else value


def _isinstance(value: Any, kinds: Any) -> bool:
    return isinstance(_as_compiled(value, "isinstance()"), kinds)


def _hasattr(value: Any, name: str) -> bool:
    return hasattr(_as_compiled(value, "hasattr()"), name)


def _getattr(value: Any, name: str, *default: Any) -> Any:
    return getattr(_as_compiled(value, "getattr()") if default else value, name, *default)


def _is(left: Any, right: Any) -> bool:
    """Nothing that may be a number or a tensor is None."""
    if left is None or right is None:
        return _unwrapped(left) is _unwrapped(right)
    return _as_compiled(left, "`is`") is _as_compiled(right, "`is`")


CLASSES: Final = {"isinstance": _isinstance, "hasattr": _hasattr, "getattr": _getattr}
"""Python's functions that tell one class of values from another."""

FUNCTIONS: Final = {
    "__all": _joined("logical_and", False),
    "__any": _joined("logical_or", True),
    "__is": _is,
    "__is_not": lambda left, right: not _is(left, right),
    "__not": _not,
    "__plain": _plain,
}
"""By a name that no kernel may use (compiler/check.py)."""
