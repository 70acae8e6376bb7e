"""Lets a reference's get_inputs() make its tensors in the arena's set directly, if that is possible.

To draw gigabytes elsewhere and copy them takes twice as long. A draw can be made in place if it consists of tensors
that are laid out as they were allocated, and nothing else: the first draw of the task's own case, which is copied,
shows that. The referee changes the values in a set, so that a task may not keep any tensor that is there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from shared import native, values
from shared.arena import PAGE, Arena, align
from shared.values import TensorNote

LEAST: Final = 8 * PAGE
"""Bytes of a set from which on it is worth the while. Such sets are as many pages."""


class Draws:
    """Of one reference."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._is_in_place: bool | None = None if arena.device.type == "cuda" else False  # None: not known yet
        self._is_kept = False  # something that lies in a set
        self._allocator: Any = None
        self._pools: dict[int, Any] = {}  # by the set's offset in the arena

    def put(self, draws: Sequence[Callable[[], list[Any]]], offset: int, room: int, *, is_own: bool) -> tuple[Any, int]:
        """The results of these draws, from offset on, `room` bytes apart: the first one's tree, and the first byte
        after the last. ValueError if they differ in more than the values of tensors.
        """
        tree, end = self._put(draws[0], offset, room, is_own=is_own)
        if is_own and self._is_in_place:
            for index, draw in enumerate(draws[1:], 1):
                other, end = self._put(draw, offset + index * room, room, is_own=True)
                if values.map_tensors(tree, partial(_moved, distance=index * room)) != other:
                    raise ValueError(OTHER_FORM)
        elif len(draws) > 1:
            self._copy_all(draws[1:], tree, room)
            end += (len(draws) - 1) * room
        return tree, end

    def _copy_all(self, draws: Sequence[Callable[[], list[Any]]], tree: Any, room: int) -> None:
        """Into the sets behind the one of this tree. For calls of microseconds a note for each would take longest."""
        form = list(values.leaves(values.decode(tree, lambda note: note)))
        places: dict[int, torch.Tensor] = {}
        for index, (_, note) in enumerate(form):
            if isinstance(note, TensorNote):
                self._arena.view(_moved(note, len(draws) * room))  # the last one is inside
                step = room // note.dtype.itemsize
                view = self._arena.view(note)
                places[index] = view.as_strided(
                    (len(draws), *note.shape), (step, *note.stride), view.storage_offset() + step
                )
        for set_, draw in enumerate(draws):
            found = list(values.leaves(draw()))
            if [path for path, _ in found] != [path for path, _ in form]:
                raise ValueError(OTHER_FORM)
            for index, ((_, first), (_, leaf)) in enumerate(zip(form, found, strict=True)):
                if not _is_alike(first, leaf):
                    raise ValueError(OTHER_FORM)
                if index in places:
                    places[index][set_].copy_(leaf)

    def _put(self, draw: Callable[[], list[Any]], offset: int, room: int, *, is_own: bool) -> tuple[Any, int]:
        """The result of draw(), from offset on: the tree, and the first byte after it.

        draw makes the same each time. room: the bytes of a set, all of which may be written to. is_own: it is the
        task's own case. RuntimeError if the task keeps a tensor; else draw()'s exceptions, and ValueRefused.
        """
        if not is_own:
            return self._copied(draw(), offset)
        if self._is_in_place is None:
            return self._tried(draw, offset)
        found = self._in_place(draw, offset, room) if self._is_in_place else None
        if self._is_kept:
            raise RuntimeError("get_inputs() keeps tensors that it made, and kept none when it was first called")
        return found or self._copied(draw(), offset)

    def _copied(self, inputs: list[Any], offset: int) -> tuple[Any, int]:
        def put(tensor: torch.Tensor, note: TensorNote) -> None:
            self._arena.view(note).copy_(tensor)

        return _laid_out(inputs, offset, put)

    def _tried(self, draw: Callable[[], list[Any]], offset: int) -> tuple[Any, int]:
        """The first one."""
        gc.collect()
        before = _requested("current")
        torch.cuda.reset_peak_memory_stats()
        inputs = draw()
        peak = _requested("peak") - before
        size = sum(leaf.nbytes for _, leaf in values.leaves(inputs) if isinstance(leaf, torch.Tensor))
        placed = self._copied(inputs, offset)
        del inputs
        self._is_in_place = size >= LEAST and peak <= size and _requested("current") <= before
        if self._is_in_place:
            torch.cuda.empty_cache()  # as much again, which is not used any more
        return placed

    def _in_place(self, draw: Callable[[], list[Any]], offset: int, room: int) -> tuple[Any, int] | None:
        """None if it is not possible; the set has to be written again then."""
        before = _requested("current")
        found = self._drawn_there(draw, offset, room)
        self._is_in_place = found is not None
        self._is_kept |= _requested("current") > before
        return found

    def _drawn_there(self, draw: Callable[[], list[Any]], offset: int, room: int) -> tuple[Any, int] | None:
        def check(tensor: torch.Tensor, note: TensorNote) -> None:
            if tensor.data_ptr() != self._arena.pointer + (note.offset or 0):
                raise _Elsewhere

        try:
            with torch.cuda.use_mem_pool(self._pool(offset, room)):
                inputs = draw()
            return _laid_out(inputs, offset, check)
        except (_Elsewhere, torch.OutOfMemoryError):
            return None
        finally:
            native.place_set(0, 0)

    def _pool(self, offset: int, room: int) -> Any:
        """The set's own. Its blocks come from there when it is first used, and no others ever."""
        if offset not in self._pools:
            if self._allocator is None:
                self._allocator = torch.cuda.memory.CUDAPluggableAllocator(
                    str(native.LIBRARY), "harness_place_malloc", "harness_place_free"
                )
            native.place_set(self._arena.pointer + offset, room)
            self._pools[offset] = torch.cuda.MemPool(self._allocator.allocator())
        return self._pools[offset]


OTHER_FORM: Final = "get_inputs() made other shapes, or other values that are no tensors, than before"


def _moved(note: TensorNote, distance: int) -> TensorNote:
    return note.moved((note.offset or 0) + distance)


def _is_alike(first: Any, leaf: Any) -> bool:
    """A tensor of this note's form, or an equal value."""
    if isinstance(first, TensorNote):
        return isinstance(leaf, torch.Tensor) and tuple(leaf.shape) == first.shape and leaf.dtype == first.dtype
    return type(first) is type(leaf) and bool(first == leaf or (first != first and leaf != leaf))


class _Elsewhere(Exception):
    """A tensor does not lie where it is wanted."""


def _laid_out(inputs: list[Any], offset: int, put: Callable[[torch.Tensor, TensorNote], None]) -> tuple[Any, int]:
    end = offset

    def place(tensor: torch.Tensor) -> TensorNote:
        nonlocal end
        tensor = values.without_gaps(tensor)
        note = TensorNote.of(tensor, end)
        put(tensor, note)
        end = align(end + note.span_bytes)
        return note

    return values.encode(inputs, place, "get_inputs()"), end


def _requested(which: str) -> int:
    """Bytes that tensors asked for, "current" or "peak": what their blocks are larger is chance."""
    return int(torch.cuda.memory_stats_as_nested_dict()["requested_bytes"]["all"][which])
