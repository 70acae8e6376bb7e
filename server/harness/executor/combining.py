"""Triton's interpreter, changed to reduce and scan by a function of the kernel in as few calls as the tree of a GPU.

Triton 3.6 calls the function once for each element, and a kernel whose rows are long never ended within a stage's
time. Here the function gets halves of the block, so that one of n elements takes log2(n) calls. It is associative, or
the kernel is wrong: which operands meet is left to the compiler on a GPU, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

Arrays = list[Any]

_LEAST: Final = 4
"""Elements below which nothing is gained."""


class IsBranch(Exception):
    """The function asks a block for one truth value, which only its elements have."""


@contextmanager
def _unbranched() -> Iterator[None]:
    """The interpreter takes any block for true."""
    kept = tl.tensor.__bool__

    def truth(self: Any) -> bool:
        if self.handle.data.size != 1:
            raise IsBranch
        return bool(self.handle.data.item())

    tl.tensor.__bool__ = truth
    try:
        yield
    finally:
        tl.tensor.__bool__ = kept


def _combined(self: Any, kinds: Sequence[Any], left: Arrays, right: Arrays) -> Arrays:
    """The function's results for two lists of blocks of one shape."""
    args = [self.to_tensor(data, kind) for part in (left, right) for data, kind in zip(part, kinds, strict=True)]
    found = self.combine_fn.fn(*args)
    found = found if isinstance(found, tuple) else (found,)
    values = [one.handle.data if isinstance(one, tl.tensor) else np.asarray(one) for one in found]
    return [np.broadcast_to(value, data.shape).astype(data.dtype) for value, data in zip(values, left, strict=True)]


def _reduce(slow: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, input: Any) -> Any:
        parts, axis = self.unravel(input, self.axis)
        kinds = [part.dtype.scalar for part in parts]
        data = [np.moveaxis(part.handle.data, axis, 0) for part in parts]
        if data[0].size < _LEAST:
            return slow(self, input)
        try:
            with _unbranched():
                while len(data[0]) > 1:  # a power of two, as every side of a block
                    data = _combined(self, kinds, [one[0::2] for one in data], [one[1::2] for one in data])
        except IsBranch:
            return slow(self, input)
        found = [one[0] for one in data]
        if self.keep_dims:
            whole = [1] * len(input[0].shape)
            found = [one.reshape(whole) if self.axis is None else np.expand_dims(one, axis) for one in found]
        return [self.to_tensor(one if one.shape else one.item(), kind) for one, kind in zip(found, kinds, strict=True)]

    return run


def _scan(slow: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, input: Any) -> Any:
        kinds = [part.dtype.scalar for part in input]
        data = [np.moveaxis(part.handle.data, self.axis, 0) for part in input]
        if data[0].size < _LEAST:
            return slow(self, input)
        step = 1
        try:
            with _unbranched():
                while step < len(data[0]):
                    new = _combined(self, kinds, [np.roll(one, step, 0) for one in data], data)
                    data = [np.concatenate([one[:step], n[step:]]) for one, n in zip(data, new, strict=True)]
                    step *= 2
        except IsBranch:
            return slow(self, input)
        return [self.to_tensor(np.moveaxis(one, 0, self.axis), kind) for one, kind in zip(data, kinds, strict=True)]

    return run


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    if getattr(interpreter.ReduceOps.generic_reduce, "__module__", None) == __name__:
        return
    interpreter.ReduceOps.generic_reduce = _reduce(interpreter.ReduceOps.generic_reduce)
    interpreter.ScanOps.generic_scan = _scan(interpreter.ScanOps.generic_scan)
