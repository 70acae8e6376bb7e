"""Where kernels under Triton's interpreter may write: inside the tensors of their call, and nowhere else.

A kernel computes addresses, and the interpreter writes to whatever they are. Here every store and atomic operation is
checked against the memory of the tensors that the plan has at that time, and a load from elsewhere returns a value that
no honest answer contains.

The interpreter runs the programs of a launch one after the other, a GPU concurrently. If a launch is `unordered` a load
of data that another program has stored returns the earlier data, as it may on a GPU. A volatile load puts programs in
an order; so does an atomic operation if a program can wait for another (`may_wait`). If none can, the last program is
run first, and an atomic operation publishes the earlier stores of its own program, and nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


@dataclass
class _Written:
    """A run of memory that a launch has stored to, by elements of the first store's size."""

    size: int
    programs: Any
    """Of each element: the program that stored it last, -1 for none."""
    before: Any
    """The earlier data, or data published since, as unsigned integers."""
    memory: Any
    """The present data."""

    @staticmethod
    def of(start: int, end: int, size: int) -> _Written:
        count = (end - start) // size
        memory = np.frombuffer((ctypes.c_uint8 * (count * size)).from_address(start), dtype=f"u{size}")
        return _Written(size, np.full(count, -1, dtype=np.int64), memory.copy(), memory)


class Bounds:
    """The memory that one launch may use. A violation is kept, since the interpreter only reports that it failed."""

    def __init__(
        self,
        inputs: Iterable[torch.Tensor],
        others: Iterable[torch.Tensor],
        *,
        is_unordered: bool = False,
        may_wait: bool = True,
    ) -> None:
        """inputs: borrowed memory, of which each tensor's own part counts; others: with all of their storage."""
        inputs = list(inputs)
        borrowed = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        ranges = [_span(tensor) for tensor in inputs if tensor.numel()]
        for tensor in others:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in borrowed and storage.nbytes():
                ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        ranges = _merged(ranges)
        self._starts = np.array([start for start, _ in ranges], dtype=np.uint64)
        self._ends = np.array([end for _, end in ranges], dtype=np.uint64)
        self.violation: str | None = None
        self._is_unordered = is_unordered
        self.may_wait = may_wait
        self.is_backward = is_unordered and not may_wait
        self._storing = -1
        self._unpublished: list[tuple[_Written, Any]] = []
        """The stores of the running program since its last atomic operation: elements of runs."""
        self._written: dict[int, _Written] = {}

    def inside(self, addresses: Any, size: int) -> Any:
        """For each address: whether the next `size` bytes there are a tensor's."""
        if not len(self._starts):
            return np.zeros(addresses.shape, dtype=bool)
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        return (at >= 0) & (addresses <= self._ends[np.maximum(at, 0)] - np.uint64(size))

    def require(self, addresses: Any, mask: Any, size: int) -> None:
        """IndexError, and a violation, where an address that is not masked is outside."""
        used = np.broadcast_to(addresses, mask.shape)[mask]
        outside = used[~self.inside(used, size)]
        if outside.size:
            self.violation = self._told(int(outside.flat[0]), int(outside.size))
            raise IndexError(self.violation)

    def put_in_order(self) -> None:
        """A volatile load was run, by a program that waits for another: earlier stores may be meant for others."""
        self._is_unordered = False

    def publish(self, program: int) -> None:
        """Before an atomic operation."""
        if self.may_wait:
            self.put_in_order()
        if self._is_unordered and program == self._storing:
            for run, elements in self._unpublished:
                run.programs[elements] = -1
                run.before[elements] = run.memory[elements]
        self._unpublished.clear()

    def stores(self, program: int, addresses: Any, mask: Any, size: int) -> None:
        """Before a store inside."""
        if not self._is_unordered:
            return
        used = np.broadcast_to(addresses, mask.shape)[mask]
        if program != self._storing:
            self._storing = program
            self._unpublished.clear()
        for run, _, elements in self._elements(used, size, opens=True):
            run.programs[elements] = program
            self._unpublished.append((run, elements))

    def undo_others(self, program: int, addresses: Any, mask: Any, found: Any) -> None:
        """After a load: puts what was there before into the place of what other programs have stored."""
        if not self._is_unordered or not self._written:
            return
        places = np.flatnonzero(np.broadcast_to(mask, found.shape))
        used = np.broadcast_to(addresses, found.shape).reshape(-1)[places]
        bits = np.ascontiguousarray(found).reshape(-1).view(f"u{found.itemsize}")
        for run, of, elements in self._elements(used, found.itemsize, opens=False):
            foreign = (run.programs[elements] != -1) & (run.programs[elements] != program)
            bits[places[of[foreign]]] = run.before[elements[foreign]]
        found[...] = bits.view(found.dtype).reshape(found.shape)

    def _elements(self, addresses: Any, size: int, *, opens: bool) -> Iterator[tuple[_Written, Any, Any]]:
        """The runs that addresses lie in: which of them, and their elements. One of another size of element is left."""
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        for index in np.unique(at).tolist():
            start = int(self._starts[index])
            if opens and index not in self._written:
                self._written[index] = _Written.of(start, int(self._ends[index]), size)
            run = self._written.get(index)
            of = np.flatnonzero(at == index)
            offsets = addresses[of] - np.uint64(start)
            if run is not None and run.size == size and not (offsets % np.uint64(size)).any():
                yield run, of, (offsets // np.uint64(size)).astype(np.int64)

    def _told(self, address: int, count: int) -> str:
        nearest = min(
            (max(start - address, address - end, 0), "before" if address < start else "behind the end of", end - start)
            for start, end in zip([0, *self._starts.tolist()], [0, *self._ends.tolist()], strict=True)
        )
        distance, side, size = nearest
        where = f"the first {distance} bytes {side} one of {size} bytes"
        return f"{count} elements are written outside of all tensors, {where}"


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize


def _program(builder: Any) -> int:
    """The number of the program that runs."""
    (x, y, z), (across, down, _) = builder.grid_idx, builder.grid_dim
    return int(x + across * (y + down * z))


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(set(ranges)):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


_active: list[Bounds] = []


@contextmanager
def held(bounds: Bounds) -> Iterator[None]:
    """Around a launch."""
    _active.append(bounds)
    try:
        yield
    finally:
        _active.pop()


def install() -> None:
    """Once for a process, before a kernel is interpreted."""
    builder: Any = interpreter.InterpreterBuilder
    if hasattr(builder, "is_bounded"):
        return
    builder.is_bounded = True
    load, store, set_place = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def placed(self: Any, *place: int) -> None:
        if _active and _active[-1].is_backward:
            place = tuple(of - 1 - at for at, of in zip(place, self.grid_dim, strict=True))
        set_place(self, *place)

    def bounded_load(
        self: Any, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
    ) -> Any:
        if not _active:
            return load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
        if is_volatile and _active[-1].may_wait:  # a program that waits for another
            _active[-1].put_in_order()
        size = interpreter._get_np_dtype(ptrs.get_element_ty()).itemsize
        inside = mask.data & _active[-1].inside(ptrs.data, size)
        outside = mask.data & ~inside
        if outside.any():
            mask = interpreter.TensorHandle(inside, tl.int1)  # of a block pointer it is an array of numpy's
        found = load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
        _active[-1].undo_others(_program(self), ptrs.data, inside, found.data)
        if outside.any():
            found.data[outside] = np.nan if found.data.dtype.kind == "f" else np.iinfo(found.data.dtype).max
        return found

    def bounded_store(self: Any, ptrs: Any, value: Any, mask: Any, *more: Any) -> Any:
        if _active:
            _active[-1].require(ptrs.data, mask.data, value.data.itemsize)
            _active[-1].stores(_program(self), ptrs.data, mask.data, value.data.itemsize)
        return store(self, ptrs, value, mask, *more)

    def bounded_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *more: Any) -> Any:
        if _active:
            _active[-1].require(ptr.data, mask.data, val.data.itemsize)
            _active[-1].publish(_program(self))
        return rmw(self, op, ptr, val, mask, *more)

    def bounded_cas(self: Any, ptr: Any, cmp: Any, val: Any, *more: Any) -> Any:
        if _active:
            _active[-1].require(ptr.data, np.ones(ptr.data.shape, dtype=bool), val.data.itemsize)
            _active[-1].publish(_program(self))
        return cas(self, ptr, cmp, val, *more)

    builder.set_grid_idx = placed
    builder.create_masked_load, builder.create_masked_store = bounded_load, bounded_store
    builder.create_atomic_rmw, builder.create_atomic_cas = bounded_rmw, bounded_cas
