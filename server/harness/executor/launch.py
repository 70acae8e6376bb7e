"""Launches of a plan on a GPU: the parameters of a kernel, packed as Triton 3.6's own launcher packs them.

What a launch says is a claim of the tracer's. It can be wrong in value, never in form: the parser has checked types,
the compiler made the image from the same signature, and both are held against each other here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from shared import native

from executor.steps import Descriptor

SCALARS: Final = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip
"""struct's letter for a scalar of this type."""
TMA_TYPES: Final = {8: 10, 9: 8, 10: 9}
"""CUtensorMapDataType of Triton's number for an element type, where the two differ."""


class LaunchRefused(ValueError):
    """The launch does not fit the kernel: a false plan. The text names the parameter."""


@dataclass(frozen=True)
class Compiled:
    """The kernel compiler's record of one image."""

    image: bytes
    entry: str
    num_warps: int
    num_ctas: int
    shared_bytes: int
    global_scratch_bytes: int  # of one block
    profile_scratch_bytes: int
    launch_cooperative_grid: bool
    launch_pdl: bool
    descriptors: tuple[dict[str, Any] | None, ...]
    """For each tensor descriptor among the parameters: how the accelerator sees it; None: as pointer and sizes."""


def scalar(kind: str, value: Any, name: str) -> bytes:
    """One scalar parameter. LaunchRefused when the value is none of that type."""
    try:
        if kind == "bf16":
            return struct.pack("<f", value)[2:]
        return struct.pack("<" + SCALARS[kind], value)
    except KeyError:
        raise LaunchRefused(f"parameter {name}: type {kind!r} is not known") from None
    except (struct.error, TypeError, OverflowError) as error:
        raise LaunchRefused(f"parameter {name}: {value!r} is no {kind}: {error}") from None


def _pointer(value: Any, name: str) -> bytes:
    if isinstance(value, torch.Tensor):
        return struct.pack("<Q", value.data_ptr())
    if type(value) is int:
        return struct.pack("<Q", value & (1 << 64) - 1)
    raise LaunchRefused(f"parameter {name}: {type(value).__name__} where a tensor is due")


def _descriptor(kind: str, value: Any, meta: dict[str, Any] | None, name: str) -> list[bytes]:
    """The parameters that a tensor descriptor becomes: what the hardware needs, then sizes and strides."""
    if not isinstance(value, Descriptor):
        raise LaunchRefused(f"parameter {name}: {type(value).__name__} where a tensor descriptor is due")
    sizes = [scalar("i32", size, name) for size in value.shape] + [scalar("i64", step, name) for step in value.strides]
    if meta is None:
        wide = [struct.pack("<q", number) for number in (*value.shape, *value.strides)]
        return [_pointer(value.base, name), *wide, struct.pack("<b", value.is_nan_padded), *sizes]
    shape = list(value.shape)
    if meta.get("fp4_padded"):
        shape[-1] *= 2
    element = int(meta["elem_size"])
    map_ = native.tensor_map(
        value.base.data_ptr(),
        type_=TMA_TYPES.get(int(meta["elem_type"]), int(meta["elem_type"])),
        swizzle=int(meta["swizzle"]),
        fill=int(value.is_nan_padded),
        shape=shape[::-1],
        stride_bytes=[step * element for step in value.strides[-2::-1]],
        box=[int(size) for size in meta["block_size"]][::-1],
    )
    sizes[: len(shape)] = [struct.pack("<i", size) for size in shape]
    return [map_, *sizes]


def pack(
    signature: Sequence[tuple[str, Any]], values: Sequence[Any], descriptors: Sequence[dict[str, Any] | None]
) -> list[bytes]:
    """The kernel's parameters, without Triton's two scratch pointers.

    signature: (name, type) in order, a type being Triton's text or a sequence of them for a tuple; values: as many.
    """
    if len(signature) != len(values):
        raise LaunchRefused(f"{len(values)} arguments for {len(signature)} parameters")
    found: list[bytes] = []
    rest = list(descriptors)

    def put(kind: Any, value: Any, name: str) -> None:
        if not isinstance(kind, str):
            if not isinstance(value, tuple | list) or len(value) != len(kind):
                raise LaunchRefused(f"parameter {name}: a tuple of {len(kind)} is due")
            for index, (inner, item) in enumerate(zip(kind, value, strict=True)):
                put(inner, item, f"{name}[{index}]")
        elif kind == "constexpr":
            return
        elif kind.startswith("*"):
            found.append(_pointer(value, name))
        elif kind.startswith("tensordesc"):
            found.extend(_descriptor(kind, value, rest.pop(0) if rest else None, name))
        else:
            found.append(scalar(kind, value, name))

    for (name, kind), value in zip(signature, values, strict=True):
        put(kind, value, name)
    return found


class Kernel:
    """A compiled kernel, loaded into this process's context. close() unloads it."""

    def __init__(self, compiled: Compiled, signature: Sequence[tuple[str, Any]]) -> None:
        self.compiled = compiled
        self.signature = signature
        self.image = native.image_load(compiled.image, compiled.entry, compiled.shared_bytes)
        self._shape = native.LaunchShape(
            function=self.image.function,
            threads=32 * compiled.num_warps,
            cluster=compiled.num_ctas,
            shared_bytes=compiled.shared_bytes,
            is_cooperative=compiled.launch_cooperative_grid,
            is_overlapping=compiled.launch_pdl,
        )

    def close(self) -> None:
        native.image_free(self.image.module)

    def launch(
        self,
        grid: tuple[int, int, int],
        values: Sequence[Any],
        scratch: Callable[[int], torch.Tensor],
        *,
        overlaps: bool = True,
    ) -> None:
        """Queue it on torch's current stream. scratch: makes that many bytes, which stay until the call is over.

        overlaps: it may begin before the launch in front has ended, if its image asks for that. A grid with a zero
        launches nothing, as with Triton.
        """
        arguments = pack(self.signature, values, self.compiled.descriptors)
        blocks = grid[0] * grid[1] * grid[2]
        if not blocks:
            return
        for size in (self.compiled.global_scratch_bytes, self.compiled.profile_scratch_bytes):
            pointer = scratch(size * blocks * self.compiled.num_ctas).data_ptr() if size else 0
            arguments.append(struct.pack("<Q", pointer))
        shape = self._shape if overlaps else replace(self._shape, is_overlapping=False)
        native.launch(shape, grid, arguments, torch.cuda.current_stream().cuda_stream)
