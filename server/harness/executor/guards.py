"""Guard zones: what a kernel on a GPU writes before or behind a tensor.

For one call each tensor that it uses is a copy between two zones of a secret pattern, which ends at the tensor's first
and last byte. The pattern reads as NaN in every floating-point type, so that an answer which depends on it is wrong.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable
from typing import Any, Final

import torch
from shared import plan

from executor.steps import Environment, StepError, tree_leaves

ZONE: Final = 4096
"""Bytes on each side; a multiple of what allocations are aligned to."""


class OutOfBounds(StepError):
    """A kernel wrote into a zone."""


def _pattern(device: torch.device) -> torch.Tensor:
    """ZONE bytes: pairs of them that are NaN in half types, and so in wider ones."""
    pairs = (0x7FF1 + secrets.randbelow(15) | secrets.choice((0, 0x8000)) for _ in range(ZONE // 2))
    found = bytearray(b"".join(pair.to_bytes(2, "little") for pair in pairs))
    return torch.frombuffer(found, dtype=torch.uint8).to(device)


def _span(tensor: torch.Tensor) -> int:
    """Bytes from its first to its last element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


class Guards:
    """The zones of one call. They own the memory of what the call answers."""

    def __init__(self, device: torch.device) -> None:
        self._pattern = _pattern(device)
        self._buffers: list[tuple[torch.Tensor, int, str]] = []
        """With zones; the line that made the tensor inside, and how it is called."""

    def around(self, tensor: torch.Tensor, line: int, name: str) -> torch.Tensor:
        """A copy with the same shape, strides and values, alone in a storage between two zones."""
        if tensor.numel() == 0 or tensor.layout != torch.strided:
            return tensor
        size = _span(tensor)
        buffer = torch.empty(ZONE + size + ZONE, dtype=torch.uint8, device=tensor.device)
        buffer[:ZONE] = self._pattern
        buffer[ZONE + size :] = self._pattern
        module: Any = torch._C
        inside = module._construct_storage_from_data_pointer(buffer.data_ptr() + ZONE, tensor.device, size)
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(inside, 0, tensor.shape, tensor.stride())
        made.copy_(tensor)
        self._buffers.append((buffer, line, name))
        return made

    def enter(self, values: Environment, inputs: Iterable[int]) -> None:
        """What a call begins with. Inputs that overlap, and what a model keeps in one memory, stay as they are."""
        borrowed = set(inputs)
        starts = {id_: values[id_].data_ptr() for id_ in borrowed if values[id_].numel()}
        spans = sorted((start, start + _span(values[id_]), id_) for id_, start in starts.items())
        alone = set(starts)
        for (_, end, before), (start, _, after) in itertools.pairwise(spans):
            if start < end:
                alone -= {before, after}
        kept: dict[int, list[int]] = {}
        for id_ in values.keys() - borrowed:
            kept.setdefault(values[id_].untyped_storage().data_ptr(), []).append(id_)
        for id_ in alone:
            values[id_] = self.around(values[id_], 0, "an input")
        for ids in kept.values():
            if len(ids) == 1:
                values[ids[0]] = self.around(values[ids[0]], 0, "a tensor that the model keeps")

    def made(self, step: plan.Call, values: Environment) -> None:
        """Of what a step defined: tensors with memory of their own get zones."""
        new = {leaf.id for leaf in tree_leaves(step.out)}
        old = {tensor.untyped_storage().data_ptr() for id_, tensor in values.items() if id_ not in new}
        for id_ in new:
            if values[id_].untyped_storage().data_ptr() not in old:
                values[id_] = self.around(values[id_], step.line, f"what {step.op} made")

    def check(self) -> None:
        """Waits for the device. OutOfBounds where a zone was written to: of which tensor, and how far from it."""
        broken = [((b[:ZONE] != self._pattern).any() | (b[-ZONE:] != self._pattern).any()) for b, _, _ in self._buffers]
        if not broken or not bool(torch.stack(broken).any()):
            return
        buffer, line, name = self._buffers[[bool(found) for found in broken].index(True)]
        before, behind = (part.nonzero() for part in (buffer[:ZONE] != self._pattern, buffer[-ZONE:] != self._pattern))
        distance, side = (int(behind[0]), "behind") if len(behind) else (ZONE - 1 - int(before[-1]), "before")
        size = buffer.numel() - 2 * ZONE
        what = f"a kernel wrote outside of all tensors, {distance} bytes {side} {name} ({size} bytes)"
        raise OutOfBounds(line, what)
