"""Functions of libdevice under Triton's interpreter, which has none: by torch, in the precision of their arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import torch
import triton.language as tl
from shared.movement import words
from triton.runtime import interpreter

MODULES: Final = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_SAME: Final = words(
    """
    abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot
    log log10 log1p log2 lgamma pow rsqrt sin sinh sqrt tan tanh trunc
    """
)
"""Those that have torch's names."""
_OTHERS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "cbrt": lambda x: x.sign() * x.abs().pow(1.0 / 3.0),
    "div_rn": torch.div,
    "exp10": lambda x: torch.pow(10.0, x),
    "fdim": lambda x, y: (x - y).clamp_min(0.0),
    "fma": lambda x, y, z: x * y + z,
    "nearbyint": torch.round,
    "normcdf": torch.special.ndtr,
    "rint": torch.round,
    "round": lambda x: x.sign() * (x.abs() + 0.5).floor(),
    "fast_expf": torch.exp,
    "fast_logf": torch.log,
    "fast_tanhf": torch.tanh,
    "fast_dividef": torch.div,
    "float2int_rn": lambda x: torch.round(x).to(torch.int32),
    "float2int_rz": lambda x: torch.trunc(x).to(torch.int32),
    "isnan": lambda x: x.isnan().to(torch.int32),
    "isinf": lambda x: x.isinf().to(torch.int32),
}


def _call(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None) -> Any:
        tensors = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
        kind = tensors[0].dtype.scalar
        found = function(*(torch.from_numpy(tensor.handle.data.copy()) for tensor in tensors))
        kind = tl.int32 if found.dtype is torch.int32 else kind
        handle = interpreter.TensorHandle(found.numpy(), kind)
        shape = [size for tensor in tensors for size in tensor.shape]
        return tl.tensor(handle, tl.block_type(kind, list(found.shape)) if shape else kind)

    call.__triton_builtin__ = True  # type: ignore[attr-defined]  # as the function that it replaces
    return call


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    functions = {**{name: getattr(torch, name) for name in _SAME}, **_OTHERS}
    for module in map(importlib.import_module, MODULES):
        for name, function in functions.items():
            if hasattr(module, name):
                setattr(module, name, _call(function))
