"""Triton's interpreter, with the objects that it makes for every block made once for each shape.

A block under the interpreter makes some ten objects for its shape, and a launch scans the whole language, which
together take longer than the computation. None of them changes after it was made, and a process runs the kernels of one
candidate.
"""

from __future__ import annotations

import math
from typing import Any, Final

import triton.language as tl
from triton.runtime import interpreter

PLAIN: Final = (int, float, str, bool)


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """As integers; None: they are not all of them that."""
    sizes = tuple(size.value if type(size) is tl.constexpr else size for size in shape)
    return sizes if all(type(size) is int for size in sizes) else None


def _unwrap_quickly(slow: Any) -> Any:
    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is tl.constexpr:
            return value.value
        return value if kind is tl.tensor or kind in PLAIN else slow(value)

    return unwrap


def _block_types(slow: Any) -> Any:
    known: dict[tuple[int, ...], tuple[Any, int, str]] = {}

    def make(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = _sizes(shape)
        found = None if sizes is None else known.get(sizes)
        if found is None:
            slow(self, element_ty, shape)
            if sizes is not None:
                known[sizes] = self.shape, self.numel, str(self.shape)
            return
        self.element_ty = element_ty
        self.shape, self.numel, text = found
        self.name = f"<{text}, {element_ty}>"

    return make


def _tensors() -> Any:
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def make(self: Any, handle: Any, type: Any) -> None:
        sizes = tuple(type.shape) if type.is_block() else ()
        if sizes not in known:
            known[sizes] = tl.constexpr(math.prod(sizes)), tl.tuple([tl.constexpr(size) for size in sizes])
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = known[sizes]

    return make


def _same(slow: Any) -> Any:
    """Whether a shape is another one, which is mostly a list."""

    def same(self: Any, other: Any) -> Any:
        if type(other) is list and all(type(size) is int for size in other):
            return tl.constexpr(self.values == other)
        return slow(self, other)

    return same


def _broadcast(slow: Any) -> Any:
    def broadcast(self: Any, left: Any, right: Any) -> Any:
        is_same = left.type.is_block() and right.type.is_block() and left.type.shape is right.type.shape
        return (left, right) if is_same else slow(self, left, right)

    return broadcast


def _dtypes(slow: Any) -> Any:
    known: dict[str, Any] = {}

    def dtype_of(kind: Any) -> Any:
        if type(kind) is not tl.dtype:
            return slow(kind)
        if kind.name not in known:
            known[kind.name] = slow(kind)
        return known[kind.name]

    return dtype_of


def _patches(slow: Any) -> Any:
    """Replaces a module's operations while a kernel is run."""
    known: dict[tuple[int, int], list[tuple[str, Any]]] = {}

    def patch(package: Any, builder: Any, scope: Any) -> None:
        key = id(package), id(builder)
        if key not in known:
            slow(package, builder, scope)
            known[key] = [(name, vars(package)[name]) for at, name, _ in scope._changes if at is package]
            return
        for name, operation in known[key]:
            scope.set_attr(package, name, operation)

    return patch


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    module: Any = interpreter
    if getattr(module._patch_builtin, "__module__", None) == __name__:
        return
    language: Any = tl.core
    language._unwrap_if_constexpr = _unwrap_quickly(language._unwrap_if_constexpr)
    language.block_type.__init__ = _block_types(language.block_type.__init__)
    language.tensor.__init__ = _tensors()
    language.tuple.__eq__ = _same(language.tuple.__eq__)
    semantic = module.TritonSemantic
    semantic.broadcast_impl_value = _broadcast(semantic.broadcast_impl_value)
    module._get_np_dtype = _dtypes(module._get_np_dtype)
    module._patch_builtin = _patches(module._patch_builtin)
