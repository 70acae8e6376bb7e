"""The names that a kernel's text may use: the list of modules, objects and attributes (docs/compile.md).

Triton's code generator is Python that walks a kernel's syntax tree, and calls the objects that the text names:
`tl.core.os` would give access to anything. So a name leads from a module on this list to an operation of Triton's
language, a jit function, a type or a number, and nothing else. A name that does not exist is left to Triton, whose
error is the candidate's own.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, Final

import triton.language as tl
from shared.movement import words
from triton.runtime.jit import JITCallable, KernelInterface

MODULES: Final = frozenset(
    (
        "math",
        "triton",
        "triton.language",
        "triton.language.core",
        "triton.language.math",
        "triton.language.random",
        "triton.language.standard",
        "triton.language.target_info",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda",
        "triton.language.extra.cuda.gdc",
        "triton.language.extra.cuda.libdevice",
        "triton.language.extra.cuda.utils",
        "torch._inductor.runtime.triton_helpers",
    )
)
"""By full name. They are imported when a text needs them."""

CLASSES: Final[frozenset[Any]] = frozenset(
    (
        tl.block_type,
        tl.condition,
        tl.const,
        tl.constexpr,
        tl.dtype,
        tl.pointer_type,
        tl.range,
        tl.slice,
        tl.static_range,
        tl.tensor,
        tl.tensor_descriptor,
        tl.tuple,
        tl.tuple_type,
        tl.core.tensor_descriptor_base,
    )
)
"""Classes of Triton's language, to be made or to be compared with."""

FUNCTIONS: Final[frozenset[Any]] = frozenset((tl.core.get_int_dtype,))
"""Plain functions of Triton's language, of numbers: what sorts by the bits of its keys names them."""

ATTRIBUTES: Final = words(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or
    atomic_xchg atomic_xor block_shape block_type broadcast_to cast cdiv ceil cos cumprod cumsum dtype element_ty erf
    exp exp2 expand_dims flip floor fp_mantissa_width gather get_block_shapes get_int_max_value get_int_min_value
    histogram int_bitwidth int_signedness is_bf16 is_block is_bool is_const is_dtype is_floating is_fp16 is_fp32 is_fp64
    is_fp8 is_fp8e4b15 is_fp8e4b8 is_fp8e4nv is_fp8e5 is_fp8e5b16 is_int is_int1 is_int16 is_int32 is_int64 is_int8
    is_int_signed is_int_unsigned is_ptr is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 is_void item
    itemsize kind load log log2 logical_and logical_or max min name nbytes ndim numel permute primitive_bitwidth ravel
    reduce reduce_or reshape rsqrt scalar scatter shape sigmoid sin softmax sort split sqrt sqrt_rn store strides sum to
    trans type value view with_element_ty xor_sum
    """
)
"""Of values: those of tensors, descriptors, types and compile-time constants that lead to others of these."""

LOOKUPS: Final = ("getattr", "hasattr")
"""Python's functions that access an attribute by a text. The code generator handles them, and len, list, range, float,
int, isinstance, print, min and max."""

_MAPPED: Final = {"triton.language.extra.libdevice": "triton.language.extra.cuda.libdevice"}
"""Modules that the code generator replaces by others on this target."""


class Unreachable(Exception):
    """The text is not allowed to reach that; it says what."""


def module(name: str) -> ModuleType:
    """A module on the list. Unreachable: another one."""
    if name not in MODULES:
        raise Unreachable(f"the module {name}, which a kernel must not read")
    return importlib.import_module(name)


def _as_compiled(found: Any) -> Any:
    """The module that stands for this one when it is compiled."""
    if isinstance(found, ModuleType) and found.__name__ in _MAPPED:
        return importlib.import_module(_MAPPED[found.__name__])
    return found


def _is_operation(found: Any) -> bool:
    if isinstance(found, JITCallable | KernelInterface):
        return True
    return isinstance(found, FunctionType) and getattr(found, "__triton_builtin__", False) is True


def _is_value(found: Any) -> bool:
    if isinstance(found, tl.constexpr):
        return isinstance(found.value, bool | int | float | str | None)
    return isinstance(found, tl.dtype | enum.Enum | bool | int | float)


def is_module(found: Any) -> bool:
    return isinstance(found, ModuleType)


def is_namespace(found: Any) -> bool:
    """Whether attributes of it are followed, and not only held against the list."""
    return isinstance(found, ModuleType) or found is tl.PropagateNan


def step(found: Any, attribute: str, path: str) -> Any:
    """The value of an attribute of a module or an enumeration. KeyError: none, Unreachable: not for a kernel."""
    found = _as_compiled(found)
    if attribute.startswith("_") and not _is_operation(getattr(found, attribute, None)):
        raise Unreachable(f"{path}: an attribute that begins with an underscore")
    if not isinstance(found, ModuleType):
        return found.__members__[attribute]
    inner = vars(found)[attribute]
    if isinstance(inner, ModuleType):
        if inner.__name__ not in MODULES:
            raise Unreachable(f"{path}: the module {inner.__name__}, which a kernel must not read")
        return inner
    is_function = found.__name__ == "math" and callable(inner)
    is_enumeration = inner is tl.PropagateNan
    is_class = isinstance(inner, type) and inner in CLASSES
    is_function = is_function or (isinstance(inner, FunctionType) and inner in FUNCTIONS)
    if not (is_function or is_enumeration or is_class or _is_operation(inner) or _is_value(inner)):
        raise Unreachable(f"{path} is not a part of Triton's language")
    return inner


def follow(found: Any, attributes: Sequence[str], path: str) -> None:
    """Check a chain of attributes that begins at a module. Unreachable: it leads where a kernel must not.

    A chain that leads to nothing is left to Triton, one that ends in a module is not.
    """
    for index, attribute in enumerate(attributes):
        path = f"{path}.{attribute}"
        try:
            found = step(found, attribute, path)
        except KeyError:
            found = None
        if not is_namespace(found):
            for rest in attributes[index + 1 :]:
                value_attribute(rest)
            return
    if isinstance(found, ModuleType):
        raise Unreachable(f"{path}: a module as a value")


def value_attribute(attribute: str) -> None:
    """Unreachable: an attribute that values of a kernel do not have, or that leads into the compiler."""
    if attribute not in ATTRIBUTES:
        raise Unreachable(f"the attribute {attribute}, which is not one of Triton's values")


def named(name: str) -> Any:
    """An object by full name, as a plan has it. Unreachable: none that a kernel may read."""
    owner, _, rest = name.partition(".")
    attributes = rest.split(".") if rest else []
    while attributes and f"{owner}.{attributes[0]}" in MODULES:
        owner = f"{owner}.{attributes.pop(0)}"
    found: Any = module(owner)
    for attribute in attributes:
        if not is_namespace(found):
            raise Unreachable(f"{name} is not a part of Triton's language")
        try:
            found = step(found, attribute, name)
        except KeyError:
            raise Unreachable(f"{name}, which there is not") from None
    if isinstance(found, ModuleType):
        raise Unreachable(f"{name}: a module as an object")
    return found
