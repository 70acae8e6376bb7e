"""Floating-point operations of the products in a call of torch, from its shapes.

A multiplication and an addition are two. Where it is not plain how many there must be, none are counted: the figure
is a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch


def _by_second(args: tuple[Any, ...], output: torch.Tensor) -> int:
    return 2 * output.numel() * int(args[1].shape[-1])


def _product(args: tuple[Any, ...], output: torch.Tensor) -> int:
    return 2 * output.numel() * int(args[0].shape[-1])


def _reflected(args: tuple[Any, ...], output: torch.Tensor) -> int:
    return _product((args[1], args[0]), output)


def _convolution(args: tuple[Any, ...], output: torch.Tensor) -> int:
    weight = args[1]
    return 2 * output.numel() * (weight.numel() // max(1, weight.shape[0]))


def _einsum(args: tuple[Any, ...], output: torch.Tensor) -> int:
    operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
    if not isinstance(args[0], str) or len(operands) != 2 or "." in args[0]:
        return 0
    sizes: dict[str, int] = {}
    for letters, operand in zip(args[0].replace(" ", "").split("->")[0].split(","), operands, strict=True):
        sizes.update(zip(letters, operand.shape, strict=True))
    return 2 * math.prod(sizes.values())


def _attention(args: tuple[Any, ...], output: torch.Tensor) -> int:
    """Half of both products: a causal mask may spare the other."""
    query, key = args[0], args[1]
    return query.numel() * int(key.shape[-2]) + output.numel() * int(key.shape[-2])


_COUNTS: Final[dict[str, Callable[[tuple[Any, ...], torch.Tensor], int]]] = {
    **dict.fromkeys(("linear", "addmm", "baddbmm", "addmv"), _by_second),
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm", "mv", "dot", "vdot", "inner"), _product),
    "__rmatmul__": _reflected,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
}


def count(name: str, args: tuple[Any, ...], output: Any) -> int:
    """Operations of torch's function `name`; 0 if it is not a product, or is called in an unusual way."""
    counter = _COUNTS.get(name)
    if counter is None or not isinstance(output, torch.Tensor):
        return 0
    try:
        return counter(args, output)
    except (AttributeError, IndexError, TypeError, ValueError):
        return 0
