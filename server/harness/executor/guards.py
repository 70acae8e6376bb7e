"""Guard zones: what a kernel on a GPU writes before or behind a tensor's memory.

For one call its inputs, its state and what its operators make are copies between two zones of a secret pattern, which
end at the memory's first and last byte: not what operators inside an alternative make, nor what is beyond BYTES_MAX of
copies. The pattern reads as NaN in types of 16 bits and more, so that an answer which depends on it is wrong.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable
from typing import Any, Final

import torch
from shared import plan

from executor.steps import Environment, StepError

ZONE: Final = 4096
"""Bytes on each side; a multiple of what allocations are aligned to."""
BYTES_MAX: Final = 256 << 20
"""Of copies in one call: later copies have no zones."""


class OutOfBounds(StepError):
    """A kernel wrote into a zone."""


def _pattern(device: torch.device) -> torch.Tensor:
    """ZONE bytes: pairs of them that are NaN in half types, and so in wider ones."""
    drawn = torch.frombuffer(bytearray(secrets.token_bytes(ZONE)), dtype=torch.uint8).to(torch.int32).view(-1, 2)
    pairs = (0x7FF1 + drawn[:, 0] % 15) | (drawn[:, 1] & 0x80) << 8
    return pairs.to(torch.int16).view(torch.uint8).to(device)


def _span(tensor: torch.Tensor) -> int:
    """Bytes from its first to its last element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


class Guards:
    """The zones of one call. They own the memory of what the call answers."""

    def __init__(self, device: torch.device) -> None:
        self._pattern = _pattern(device)
        self._buffers: list[tuple[torch.Tensor, int, str]] = []
        """With zones; the line that made the memory inside, and how it is called."""
        self._bytes = 0

    def _copy(self, memory: torch.Tensor, line: int, name: str) -> Any:
        """The bytes of a memory in a storage of their own, between two zones."""
        size = memory.numel()
        buffer = torch.empty(ZONE + size + ZONE, dtype=torch.uint8, device=memory.device)
        buffer[:ZONE] = buffer[ZONE + size :] = self._pattern
        buffer[ZONE : ZONE + size] = memory
        self._buffers.append((buffer, line, name))
        self._bytes += size
        module: Any = torch._C
        return module._construct_storage_from_data_pointer(buffer.data_ptr() + ZONE, memory.device, size)

    def _takes(self, tensor: torch.Tensor, size: int) -> bool:
        same = tensor.device == self._pattern.device and tensor.layout == torch.strided
        return same and 0 < size <= BYTES_MAX - self._bytes

    def _move(self, values: Environment, ids: list[int], line: int, name: str) -> None:
        """Tensors of one storage into a copy of it: offsets, strides and what they share stay."""
        storage = values[ids[0]].untyped_storage()
        if not self._takes(values[ids[0]], storage.nbytes()):
            return
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        copied = self._copy(empty.set_(storage, 0, (storage.nbytes(),), (1,)), line, name)
        for id_ in ids:
            values[id_] = _placed(values[id_], copied, values[id_].storage_offset())

    def enter(self, values: Environment, inputs: Iterable[int]) -> None:
        """The tensors at the beginning of a call. Inputs lie in one memory of others: of each its own part counts, and
        those that overlap stay in place."""
        borrowed = set(inputs)
        spans = sorted(
            (values[id_].data_ptr(), values[id_].data_ptr() + _span(values[id_]), id_)
            for id_ in borrowed
            if values[id_].numel()
        )
        alone = {id_ for _, _, id_ in spans}
        for (_, end, before), (start, _, after) in itertools.combinations(spans, 2):
            if start < end:
                alone -= {before, after}
        for id_ in alone:
            tensor = values[id_]
            if self._takes(tensor, _span(tensor)):
                whole = tensor.as_strided((_span(tensor) // tensor.itemsize,), (1,)).view(torch.uint8)
                values[id_] = _placed(tensor, self._copy(whole, 0, "an input"), 0)
        for ids in _by_storage(values, values.keys() - borrowed).values():
            self._move(values, ids, 0, "a tensor that the model keeps")

    def made(self, step: plan.Call, values: Environment) -> None:
        """Of what a step defined: what has a memory of its own."""
        new = {leaf.id for leaf in plan.tree_leaves(step.out)}
        old = _by_storage(values, values.keys() - new).keys()
        for at, ids in _by_storage(values, new).items():
            if at not in old:
                self._move(values, ids, step.line, f"what {step.op} made")

    def check(self) -> None:
        """Waits for the device. OutOfBounds where a zone was written to: of which memory, and how far from it."""
        broken = [((b[:ZONE] != self._pattern).any() | (b[-ZONE:] != self._pattern).any()) for b, _, _ in self._buffers]
        if not broken or not bool(torch.stack(broken).any()):
            return
        buffer, line, name = self._buffers[[bool(found) for found in broken].index(True)]
        before, behind = (part.nonzero() for part in (buffer[:ZONE] != self._pattern, buffer[-ZONE:] != self._pattern))
        distance, side = (int(behind[0]), "behind") if len(behind) else (ZONE - 1 - int(before[-1]), "before")
        size = buffer.numel() - 2 * ZONE
        what = f"a kernel wrote outside of all tensors, {distance} bytes {side} {name} ({size} bytes)"
        raise OutOfBounds(line, what)


def _by_storage(values: Environment, ids: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for id_ in ids:
        found.setdefault(values[id_].untyped_storage().data_ptr(), []).append(id_)
    return found


def _placed(tensor: torch.Tensor, storage: Any, offset: int) -> torch.Tensor:
    """A tensor like this one in another storage, `offset` elements from its beginning."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, offset, tensor.shape, tensor.stride())
    return made.conj() if tensor.is_conj() else made
