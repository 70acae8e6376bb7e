"""The parameters that a kernel may write through, by its text.

Only for slicing state: a wrong answer drops or keeps a step of the first call, and a plan that is then wrong is judged
as such. An uncertain parameter counts as written.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from triton.runtime.jit import JITFunction

_READS: Final = ("load", "load_tensor_descriptor", "gather")
"""Calls whose result is data, and not a pointer."""


def written_parameters(jit: Any, seen: tuple[int, ...] = ()) -> set[str]:
    names = set(jit.arg_names)
    try:
        body = jit.parse().body[0].body
        scope = jit.get_capture_scope()
    except Exception:
        return names
    origin: dict[str, set[str]] = {name: {name} for name in names}
    nodes = [node for statement in body for node in ast.walk(statement)]
    for _ in range(8):
        before = sum(map(len, origin.values()))
        for node in nodes:
            _assigned(node, origin)
        if sum(map(len, origin.values())) == before:
            break
    written: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            written |= _written_by(node, origin, scope, (*seen, id(jit)))
    return written & names


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _mentioned(node: Any, origin: dict[str, set[str]]) -> set[str]:
    """The parameters that a pointer of this expression may come from."""
    if isinstance(node, ast.Call) and _name_of(node) in _READS:
        return set()
    if isinstance(node, ast.Name):
        return origin.get(node.id, set())
    return set().union(*(_mentioned(child, origin) for child in ast.iter_child_nodes(node)))


def _assigned(node: Any, origin: dict[str, set[str]]) -> None:
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        targets, value = [node.target], node.value
    elif isinstance(node, ast.For):
        targets, value = [node.target], node.iter
    else:
        return
    sources = _mentioned(value, origin)
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                origin[part.id] = origin.get(part.id, set()) | sources


def _written_by(call: ast.Call, origin: dict[str, set[str]], scope: dict[str, Any], seen: tuple[int, ...]) -> set[str]:
    name = _name_of(call)
    every = [*call.args, *(keyword.value for keyword in call.keywords)]
    mentioned = set().union(*(_mentioned(argument, origin) for argument in every))
    if name == "store" or name.startswith(("atomic_", "store_", "async_copy", "scatter")) or name == "reduce_add":
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        first = call.args[:1] or every[:1]
        of_base = _mentioned(base, origin) if base is not None else set()
        return of_base.union(*(_mentioned(argument, origin) for argument in first))
    if name.startswith("inline_asm"):
        return mentioned
    if isinstance(call.func, ast.Name) and name in origin:  # a function that is an argument
        return mentioned
    callee = scope.get(name) if isinstance(call.func, ast.Name) else None
    if not isinstance(callee, JITFunction):
        return set()
    if id(callee) in seen:
        return mentioned
    inner = written_parameters(callee, seen)
    found: set[str] = set()
    for parameter, argument in zip(callee.arg_names, call.args, strict=False):
        if parameter in inner:
            found |= _mentioned(argument, origin)
    for keyword in call.keywords:
        if keyword.arg in inner:
            found |= _mentioned(keyword.value, origin)
    return found
