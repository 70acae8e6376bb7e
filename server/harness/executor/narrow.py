"""Triton's interpreter, with the floats that NumPy lacks: bfloat16 and those of 8 bits. And truth values.

It keeps them as integers of their size, and Triton 3.6's own operations then add and multiply these integers, and
truncate a value that becomes one of them. Here each operation is done in float32 and rounded to nearest, as GPUs do; a
value beyond the range of 8 bits becomes the largest one, as in the hardware's conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

TYPES: Final = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
_KEPT: Final = {2: (np.uint16, torch.int16), 1: (np.uint8, torch.uint8)}
"""By bytes: how the interpreter keeps a value, and as what torch takes it."""
_BINARY: Final = ("fadd", "fsub", "fmul", "fdiv", "frem", "precise_divf", "minimumf", "minnumf", "maximumf", "maxnumf")
_UNARY: Final = ("cos", "exp", "exp2", "floor", "ceil", "log", "log2", "precise_sqrt", "sqrt", "sin", "erf", "rsqrt")
_CASTS: Final = ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc")

Handle = interpreter.TensorHandle
Operation = Callable[..., Any]


def _is_narrow(handle: Any) -> bool:
    return isinstance(handle, Handle) and handle.dtype.scalar in TYPES


def widened(handle: Any) -> Any:
    """The same values as float32; a value that is not narrow is returned unchanged."""
    if not _is_narrow(handle):
        return handle
    kind = TYPES[handle.dtype.scalar]
    bits = torch.from_numpy(np.ascontiguousarray(handle.data).view(_KEPT[kind.itemsize][0]).astype(np.int32))
    return Handle(bits.to(_KEPT[kind.itemsize][1]).view(kind).float().numpy(), tl.float32)


def narrowed(data: Any, dtype: Any) -> Any:
    """Values, rounded to the nearest of a narrow type."""
    kind = TYPES[dtype]
    values = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))
    if kind.itemsize == 1:
        most = torch.finfo(kind).max
        values = values.clamp(-most, most)
    rounded = values.to(kind).view(_KEPT[kind.itemsize][1]).numpy()
    return Handle(rounded.view(_KEPT[kind.itemsize][0]), dtype)


def _in_float32(operation: Operation) -> Operation:
    """An operation with a result of its arguments' type."""

    def run(self: Any, *handles: Any) -> Any:
        kinds = [handle.dtype.scalar for handle in handles if _is_narrow(handle)]
        found = operation(self, *map(widened, handles))
        return narrowed(found.data, kinds[0]) if kinds else found

    return run


def _comparison(operation: Operation) -> Operation:
    """The result is declared as truth values, not as the compared type: a splat of it uses the declared type."""

    def run(self: Any, left: Any, right: Any) -> Any:
        return Handle(operation(self, widened(left), widened(right)).data, tl.int1)

    return run


def _cast(operation: Operation) -> Operation:
    def run(self: Any, source: Any, target: Any, *more: Any) -> Any:
        to = target.scalar
        if not _is_narrow(source) and to not in TYPES:
            return operation(self, source, target, *more)
        wide = widened(source)
        if to in TYPES:
            return narrowed(wide.data, to)
        return Handle(wide.data.astype(interpreter._get_np_dtype(to)), to)

    return run


def _dot(operation: Operation) -> Operation:
    def run(self: Any, a: Any, b: Any, d: Any, *more: Any) -> Any:
        return operation(self, widened(a), widened(b), d, *more)

    return run


def _sum(operation: Operation) -> Operation:
    """Of narrow values, rounded after each addition. Triton asks for the sum of the bits."""

    def run(self: Any, source: Any) -> Any:
        kind = source.dtype.scalar
        if kind not in TYPES:
            return operation(self, source)
        data = widened(source.handle).data
        left = np.moveaxis(data.reshape(-1) if self.axis is None else data, self.axis or 0, 0)
        while left.shape[0] > 1:
            half = left.shape[0] // 2
            left = widened(narrowed(left[:half] + left[half:], kind)).data
        found = left.sum(0)
        if self.keep_dims:
            found = found.reshape([1] * data.ndim) if self.axis is None else np.expand_dims(found, self.axis)
        return tl.tensor(narrowed(found, kind), tl.block_type(kind, list(found.shape)) if found.shape else kind)

    return run


def _wrapping(operation: Operation) -> Operation:
    """Integers wrap where a whole tensor becomes one, too."""

    def run(self: Any, found: Any, dtype: Any) -> Any:
        wraps = dtype.is_int() and not np.shape(found)
        return operation(self, np.asarray(found).astype(interpreter._get_np_dtype(dtype)) if wraps else found, dtype)

    return run


def _all_ones(_self: Any, type_: Any) -> Any:
    """What `~` turns with: NumPy refuses -1 for unsigned integers."""
    return Handle(np.full(1, -1).astype(interpreter._get_np_dtype(type_)), type_.scalar)


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    builder: Any = interpreter.InterpreterBuilder
    if hasattr(builder, "get_bf16"):
        return
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)  # integers wrap
    for name in (*_BINARY, *_UNARY, "clampf", "fma"):
        setattr(builder, f"create_{name}", _in_float32(getattr(builder, f"create_{name}")))
    for name in filter(lambda name: name.startswith(("create_icmp", "create_fcmp")), dir(builder)):
        setattr(builder, name, _comparison(getattr(builder, name)))
    for name in (*_CASTS, "fp_to_fp"):
        setattr(builder, f"create_{name}", _cast(getattr(builder, f"create_{name}")))
    builder.create_dot = _dot(builder.create_dot)
    interpreter.ReduceOps.sum = _sum(interpreter.ReduceOps.sum)
    interpreter.ReduceScanOpInterface.to_tensor = _wrapping(interpreter.ReduceScanOpInterface.to_tensor)
    builder.get_all_ones_value = _all_ones
    builder.get_bf16 = lambda self, value: narrowed([value], tl.bfloat16)
    builder.get_fp8e4nv = lambda self, value: narrowed([value], tl.float8e4nv)
    builder.get_fp8e5 = lambda self, value: narrowed([value], tl.float8e5)
