"""Numbers that only a GPU knows: what `.item()` gives on fake tensors, as expressions of a plan; and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sympy
import torch
from shared import plan
from torch.utils._sympy import functions

FIRST_ADDRESS: Final = 0x0001_0000_0000_0000
ADDRESS_RANGE: Final = 1 << 41
"""Made-up addresses of one storage: wider than any tensor of a plan, aligned as torch's allocator aligns."""


class Unknown(Exception):
    """An expression that a plan cannot hold; the text says why."""


def address_of_storage(number: int) -> int:
    return FIRST_ADDRESS + number * ADDRESS_RANGE


def storage_of_address(number: int) -> int:
    """The storage that an address lies in; negative if the number is not an address."""
    return (number - FIRST_ADDRESS) // ADDRESS_RANGE if number >= FIRST_ADDRESS else -1


_OPERATIONS: Final[tuple[tuple[tuple[Any, ...], str], ...]] = (
    ((functions.FloorDiv, functions.CleanDiv), "floordiv"),
    ((functions.Mod, functions.PythonMod), "mod"),
    ((functions.IntTrueDiv, functions.FloatTrueDiv), "truediv"),
    ((sympy.Add,), "add"),
    ((sympy.Mul,), "mul"),
    ((sympy.Max, functions.Max), "max"),
    ((sympy.Min, functions.Min), "min"),
)


def expression(value: Any, item: Callable[[Any], int]) -> plan.Expr:
    """A SymInt or SymFloat as an expression; `item` gives the tensor that a symbol was read from."""
    if isinstance(value, torch.SymBool):
        raise Unknown("a truth value that only the GPU knows cannot be traced")
    return _converted(value.node.expr, item)


def _converted(expr: Any, item: Callable[[Any], int]) -> plan.Expr:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Float | sympy.Rational):
        return float(expr)
    if isinstance(expr, sympy.Symbol):
        return plan.Item(item(expr))
    if isinstance(expr, functions.ToFloat | functions.Identity):
        return _converted(expr.args[0], item)
    if isinstance(expr, functions.CeilToInt | functions.FloorToInt) and isinstance(expr.args[0], functions.IntTrueDiv):
        size, of = expr.args[0].args  # math.ceil(n / 64)
        if isinstance(of, sympy.Integer) and of > 0:
            more = of - 1 if isinstance(expr, functions.CeilToInt) else 0
            return plan.Operation("floordiv", _converted(size + more, item), int(of))
    if isinstance(expr, sympy.Pow | functions.PowByNatural) and expr.args[1] == 2:
        found = _converted(expr.args[0], item)
        return plan.Operation("mul", found, found)
    for classes, name in _OPERATIONS:
        if isinstance(expr, classes):
            found = _converted(expr.args[0], item)
            for operand in expr.args[1:]:
                found = plan.Operation(name, found, _converted(operand, item))
            return found
    raise Unknown(f"{expr} is more than a plan can compute from a number of the GPU's")
