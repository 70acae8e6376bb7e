"""Arenas: memory that the referee makes and passes to one child as a descriptor.

One interface, two implementations: `cuMemCreate` memory on a GPU, a memfd without one. An arena is a run of
bytes; tensors in it are views, made from notes whose bounds are checked here and nowhere else. Layout, as the
referee decides it: the sets of inputs, then the heap, from which the child's own allocations are served.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import torch

from shared import native
from shared.values import TensorNote, ValueRefused

ALIGNMENT: Final = 256
"""Every tensor that the referee places begins at a multiple of this: what CUDA's own allocator promises."""
PAGE: Final = 2 << 20
"""A large page of a GPU's memory; torch asks for large blocks in multiples of it."""


def align(size: int, unit: int = ALIGNMENT) -> int:
    """The next multiple of unit."""
    return (size + unit - 1) // unit * unit


@dataclass(frozen=True)
class Heap:
    """The part of an arena where a child's own tensors may lie, in bytes.

    Its first `pool` bytes serve the child's allocations on a GPU; into the rest it copies outputs made elsewhere.
    """

    offset: int
    size: int
    pool: int


class _DeviceBytes:
    """Lets torch see device memory that it did not allocate."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class Arena:
    """Owns the mapping and the descriptor; close() ends both. Views must not be used after that."""

    def __init__(self, device: torch.device, fd: int, size: int, *, is_import: bool) -> None:
        """Map what fd names. On a GPU the primary context must be current (native.gpu_init)."""
        self.device = device
        self.fd = fd
        self.size = size
        self.pointer = 0
        """Address of the first byte in this process (device address on a GPU)."""
        self._handle = 0
        if device.type == "cuda":
            if is_import:
                self.pointer, self._handle = native.gpu_arena_import(fd, size)
            self._bytes: torch.Tensor | None = None
        else:
            self._mapping = native.Mapping(fd, size)
            self.pointer = self._mapping.address
            self._bytes = torch.frombuffer(self._mapping.view(), dtype=torch.uint8)

    @classmethod
    def make(cls, device: torch.device, size: int) -> Arena:
        """A new arena of at least size bytes, poisoned with NaN patterns where that is cheap (on a GPU)."""
        if device.type != "cuda":
            return cls(device, native.arena_memfd(size), size, is_import=False)
        fd, pointer, actual, handle = native.gpu_arena_create(size)
        arena = cls(device, fd, actual, is_import=False)
        arena.pointer, arena._handle = pointer, handle
        arena.poison(0, actual)
        return arena

    def close(self) -> None:
        self._bytes = None
        if self.pointer:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # queued work, the poison at least, writes there
                native.gpu_arena_free(self.pointer, self.size, self._handle)
            else:
                self._mapping.close()
            self.pointer = 0
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def bytes(self) -> torch.Tensor:
        """All of it as uint8[size]."""
        if self._bytes is None:
            self._bytes = torch.as_tensor(_DeviceBytes(self.pointer, self.size), device=self.device)
        return self._bytes

    def poison(self, offset: int, size: int) -> None:
        """Fill with 0xFF bytes: NaN in every float type, -1 in the integers."""
        if self.device.type == "cuda":
            native.gpu_fill32(self.pointer + offset, 0xFFFFFFFF, size // 4 * 4)
        else:
            self.bytes[offset : offset + size].fill_(0xFF)

    def view(self, note: TensorNote) -> torch.Tensor:
        """The tensor at note.offset. ValueRefused when it is not wholly inside the arena, or misaligned."""
        if note.offset is None:
            raise ValueRefused("tensor without an offset")
        end = note.offset + note.span_bytes
        if end > self.size:
            raise ValueRefused(f"tensor ends at byte {end}, the arena at {self.size}")
        if note.offset % note.dtype.itemsize:
            raise ValueRefused(f"offset {note.offset} is not aligned for {note.dtype}")
        flat = self.bytes[note.offset : end].view(note.dtype)
        return flat.as_strided(note.shape, note.stride)

    def find(self, tensor: torch.Tensor) -> int | None:
        """Offset of a tensor's first element when all of it lies in this arena, else None."""
        start = int(tensor.data_ptr()) - self.pointer
        if start >= 0 and start + TensorNote.of(tensor).span_bytes <= self.size:
            return start
        return None
