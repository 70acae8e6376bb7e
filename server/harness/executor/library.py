"""Functions of Triton's language that its interpreter lacks.

Those of libdevice are computed by torch, in the precision of their arguments; what torch does not have is refused by
name, since the interpreter would return None. Tensors have methods of the same names as functions of tl.math, which
the interpreter forgets. Of what speaks to the GPU itself there is what does nothing or is known here.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from shared.movement import words
from triton.runtime import interpreter

from executor.meanings import Unavailable

MODULES: Final = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
DEVICE_MODULES: Final = (
    "triton.language.extra.cuda",
    "triton.language.extra.cuda.gdc",
    "triton.language.extra.cuda.utils",
)
METHODS: Final = words("exp exp2 log log2 cos sin sqrt sqrt_rn rsqrt erf floor ceil")
"""Of tensors, as functions of tl.math."""
WARP: Final = 32

_SAME: Final = words(
    """
    abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot
    isinf isnan log log10 log1p log2 lgamma nextafter pow rsqrt sin sinh sqrt tan tanh trunc
    """
)
"""Those that have torch's names."""
_FAST: Final = words("cos exp log log2 log10 pow sin tan tanh")
"""As fast_cosf: torch's names."""
_NEAREST: Final = words("add div mul rsqrt sqrt sub")
"""As add_rn: torch's names."""

Function = Callable[..., torch.Tensor]


def _bits(x: torch.Tensor) -> torch.Tensor:
    """Of integers, along a new first dimension, from the lowest."""
    return torch.stack([(x >> at) & 1 for at in range(8 * x.element_size())])


def _places(bits: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(bits)).reshape(-1, *[1] * (bits.dim() - 1))


def _leading_zeros(x: torch.Tensor) -> torch.Tensor:
    bits = _bits(x)
    return (len(bits) - (bits * (_places(bits) + 1)).amax(0)).int()


def _first_bit(x: torch.Tensor) -> torch.Tensor:
    """From 1; 0: none is set."""
    bits = _bits(x)
    return ((bits.argmax(0) + 1) * bits.any(0)).int()


def _reversed(x: torch.Tensor) -> torch.Tensor:
    bits = _bits(x)
    return (bits.to(x.dtype) << (len(bits) - 1 - _places(bits)).to(x.dtype)).sum(0).to(x.dtype)


def _high_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.dtype is not torch.int32:
        raise Unavailable("libdevice.mulhi of 64 bits is not available without a GPU")
    return ((x.long() * y.long()) >> 32).int()


def _rounded(x: torch.Tensor) -> torch.Tensor:
    return x.sign() * (x.abs() + 0.5).floor()


def _remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """After division by the nearest integer, of two the even one; in float64 nothing but the quotient is rounded."""
    size = y.double().abs()
    rest = torch.fmod(x.double(), 2 * size)
    turns = (rest.abs() > size / 2).double() + (rest.abs() >= 1.5 * size).double()
    return (rest - rest.sign() * turns * size).to(x.dtype)


def _scaled(x: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
    return (x.double() * torch.pow(2.0, power.double())).to(x.dtype)


def _exponent(x: torch.Tensor) -> torch.Tensor:
    found = torch.frexp(x).exponent - 1
    found = torch.where(x.isinf(), 2**31 - 1, found)
    return torch.where((x == 0) | x.isnan(), -(2**31), found).int()


def _in_double(function: Function) -> Function:
    return lambda *args: function(*(arg.double() for arg in args)).to(args[0].dtype)


def _to(kind: torch.dtype, function: Function = torch.clone) -> Function:
    return lambda x: function(x).to(kind)


def _as(kind: torch.dtype) -> Function:
    return lambda x: x.view(kind)


def _conversions() -> dict[str, Function]:
    """By libdevice's names: from, to, and how it is rounded."""
    ways = {"rn": torch.round, "rz": torch.trunc, "rd": torch.floor, "ru": torch.ceil}
    integers, floats = {"int": torch.int32, "ll": torch.int64}, {"float": torch.float32, "double": torch.float64}
    found = {
        f"{source}2{target}_{way}": _to(kind, function)
        for source in floats
        for target, kind in integers.items()
        for way, function in ways.items()
    }
    to_floats = ("double2float", "int2float", "int2double", "ll2float", "ll2double")
    return found | {f"{name}_rn": _to(floats[name.partition("2")[2]]) for name in to_floats}


_OTHERS: Final[dict[str, Function]] = {
    "cbrt": lambda x: x.sign() * x.abs().pow(1.0 / 3.0),
    "exp10": lambda x: torch.pow(10.0, x),
    "fdim": lambda x, y: (x - y).clamp_min(0.0),
    "fma": lambda x, y, z: x * y + z,
    "nearbyint": torch.round,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "rint": torch.round,
    "round": _rounded,
    "llrint": _to(torch.int64, torch.round),
    "llround": _to(torch.int64, _rounded),
    "remainder": _remainder,
    "ldexp": _scaled,
    "scalbn": _scaled,
    "ilogb": _exponent,
    "sinpi": _in_double(lambda x: torch.sin(torch.fmod(x, 2.0) * math.pi)),
    "cospi": _in_double(lambda x: torch.cos(torch.fmod(x, 2.0) * math.pi)),
    "rcbrt": _in_double(lambda x: x.sign() * x.abs().pow(-1.0 / 3.0)),
    "rhypot": _in_double(lambda x, y: torch.hypot(x, y).reciprocal()),
    "norm3d": _in_double(lambda *parts: sum(part * part for part in parts).sqrt()),
    "norm4d": _in_double(lambda *parts: sum(part * part for part in parts).sqrt()),
    "erfcx": torch.special.erfcx,
    "erfcinv": _in_double(lambda x: torch.erfinv(1.0 - x)),
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "saturatef": lambda x: x.nan_to_num(0.0).clamp(0.0, 1.0),
    "fma_rn": _in_double(lambda x, y, z: x * y + z),
    "rcp_rn": torch.reciprocal,
    "fast_dividef": torch.div,
    "fast_exp10f": lambda x: torch.pow(10.0, x),
    "isfinited": torch.isfinite,
    "finitef": torch.isfinite,
    "signbit": _to(torch.int32, torch.signbit),
    "popc": lambda x: _bits(x).sum(0).int(),
    "clz": _leading_zeros,
    "ffs": _first_bit,
    "brev": _reversed,
    "mulhi": _high_product,
    "hadd": lambda x, y: ((x.long() + y.long()) >> 1).to(x.dtype),
    "rhadd": lambda x, y: ((x.long() + y.long() + 1) >> 1).to(x.dtype),
    "float_as_int": _as(torch.int32),
    "float_as_uint": _as(torch.int32),
    "int_as_float": _as(torch.float32),
    "double_as_longlong": _as(torch.int64),
    "longlong_as_double": _as(torch.float64),
    **{name: getattr(torch.special, f"bessel_{name}") for name in ("j0", "j1", "y0", "y1")},
    **{f"fast_{name}f": getattr(torch, name) for name in _FAST},
    **{f"{name}_rn": getattr(torch, name) for name in _NEAREST},
    **_conversions(),
}

_KINDS: Final = {
    torch.bool: tl.int1,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}

_warps = 4


def _call(function: Function) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None) -> Any:
        tensors = [interpreter.interpreter_semantic.to_tensor(arg) for arg in args]
        given = [torch.from_numpy(tensor.handle.data.copy()) for tensor in tensors]
        found = function(*given)
        kind = tensors[0].dtype.scalar
        kind = kind if found.dtype is given[0].dtype else _KINDS.get(found.dtype, kind)
        handle = interpreter.TensorHandle(found.numpy(), kind)
        shape = [size for tensor in tensors for size in tensor.shape]
        return tl.tensor(handle, tl.block_type(kind, list(found.shape)) if shape else kind)

    return _of_the_language(call)


def _unavailable(name: str) -> Callable[..., Any]:
    def call(*_args: Any, **_given: Any) -> Any:
        raise Unavailable(f"{name} is not available without a GPU")

    return _of_the_language(call)


def _of_the_language(call: Callable[..., Any]) -> Callable[..., Any]:
    """As the function that it replaces: a kernel may name it (compiler/names.py)."""
    call.__triton_builtin__ = True  # type: ignore[attr-defined]
    return call


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return getattr(tl.math, name)(self)

    return method


def launches_with(warps: int) -> None:
    """How many warps a program of the next launch has."""
    global _warps
    _warps = warps


_DEVICE: Final[dict[str, Callable[..., Any]]] = {
    "gdc_wait": lambda **_: None,
    "gdc_launch_dependents": lambda **_: None,
    "num_warps": lambda **_: tl.constexpr(_warps),
    "num_threads": lambda **_: tl.constexpr(_warps * WARP),
}
"""Of tl.extra.cuda. Its clock and the number of a multiprocessor are not among them: a kernel could tell from these
that it is interpreted, and be another one."""


def _cat(_self: Any, left: Any, right: Any) -> Any:
    """tl.cat() promises no order, and on a GPU each thread has its elements of both in a row."""
    return interpreter.TensorHandle(np.stack([left.data, right.data], -1).reshape(-1), left.dtype.scalar)


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    known = {**{name: getattr(torch, name) for name in _SAME}, **_OTHERS}
    for module in map(importlib.import_module, MODULES):
        for name in _functions(module):
            made = _call(known[name]) if name in known else _unavailable(f"libdevice.{name}")
            setattr(module, name, made)
    for module in (*map(importlib.import_module, DEVICE_MODULES), tl.extra.cuda):  # which is a second one of its name
        for name in _functions(module):
            given = _DEVICE.get(name)
            made = _unavailable(f"tl.extra.cuda.{name}") if given is None else _of_the_language(given)
            setattr(module, name, made)
    for name in METHODS:
        setattr(tl.tensor, name, _method(name))
    builder: Any = interpreter.InterpreterBuilder
    builder.create_cat = _cat
    for owner in (tl, tl.core):
        owner.dot_scaled = _unavailable("tl.dot_scaled")
