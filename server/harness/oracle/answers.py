"""Right answers to large cases, kept while other members of a group are asked the same questions.

They are the referee's own memory, which no child maps, and a bounded part of the device's. Inputs are not kept: they
are drawn anew, and their fingerprint says whether the answer is theirs.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from oracle.reference import Expected

SHARE: Final = 8
"""Of a GPU's memory at most this part is kept, and no less than two of them are left free."""
HOST_BYTES: Final = 256 << 20
"""In place of that part, without a GPU."""
INPUTS_MOST: Final = 2 << 30
"""Bytes. Larger inputs get no fingerprint, nor are their answers kept: few would fit."""
WORDS: Final = 1 << 22
"""That are hashed at a time: what that makes stays in the GPU's cache."""

Key = tuple[str, Hashable]
Fingerprint = tuple[Hashable, ...]


@dataclass(frozen=True)
class Kept:
    inputs: Fingerprint
    expected: Expected
    bytes: int


class Answers:
    """Keyed by the reference's name and the request; the least recently used one is dropped. One thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: OrderedDict[Key, Kept] = OrderedDict()  # the one used last stands last
        self._bytes = 0
        self._factors: torch.Tensor | None = None

    @property
    def most(self) -> int:
        """Bytes that may be kept."""
        if self._device.type != "cuda":
            return HOST_BYTES
        return int(torch.cuda.get_device_properties(self._device).total_memory) // SHARE

    def is_fit(self, inputs: Sequence[torch.Tensor]) -> bool:
        return sum(x.nbytes for x in inputs) <= min(INPUTS_MOST, self.most)

    def find(self, key: Key, inputs: Sequence[torch.Tensor]) -> Expected | None:
        """The right answer to these inputs; None where it is not known."""
        found = self._kept.get(key)
        if found is None or found.inputs != self._fingerprint(inputs):
            return None
        self._kept.move_to_end(key)
        return found.expected

    def keep(self, key: Key, inputs: Sequence[torch.Tensor], expected: Expected) -> None:
        """Unless there is no room. Values in fp64 may lie in the reference's arena, and are copied."""
        size = sum(x.nbytes for x in [*expected.values, *expected.others] if isinstance(x, torch.Tensor))
        size += sum(item.value.nbytes for item in expected.changed or ())
        self._drop(key)
        if size > self.most or not self._leaves_free(size):
            return
        while self._bytes + size > self.most:
            self._drop(next(iter(self._kept)))
        values = expected.values
        if expected.against == "fp64":
            values = [x.clone() if isinstance(x, torch.Tensor) else x for x in values]
        # Of the outputs in the task's own dtypes only the form is looked at.
        own = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in expected.own]
        self._kept[key] = Kept(self._fingerprint(inputs), replace(expected, values=values, own=own), size)
        self._bytes += size

    def forget(self, name: str) -> None:
        """Drops the answers of this reference."""
        for key in [key for key in self._kept if key[0] == name]:
            self._drop(key)

    def clear(self) -> None:
        for key in list(self._kept):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        self._bytes -= 0 if found is None else found.bytes

    def _leaves_free(self, size: int) -> bool:
        """A candidate must not run out of memory because of those before it."""
        if self._device.type != "cuda":
            return True
        return torch.cuda.mem_get_info(self._device)[0] - size >= 2 * self.most

    def _fingerprint(self, inputs: Sequence[torch.Tensor]) -> Fingerprint:
        """Their forms, and a sum of their bytes by secret factors. inputs: dense, on the device."""
        total = torch.zeros((), dtype=torch.int64, device=self._device)
        for words in (part for x in inputs for part in _words(x)):
            total = total * 3 + (words * self._known_factors()[: words.numel()]).sum()
        return (*((x.shape, x.stride(), x.dtype) for x in inputs), int(total))

    def _known_factors(self) -> torch.Tensor:
        """Odd ones, so that no word that differs alone is lost."""
        if self._factors is None:
            generator = torch.Generator(self._device).manual_seed(secrets.randbits(63))
            drawn = torch.randint(-(1 << 62), 1 << 62, (WORDS,), generator=generator, device=self._device)
            self._factors = 2 * drawn + 1
        return self._factors


def _words(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """All bytes of a dense tensor, eight at a time and the rest one by one, as parts of WORDS numbers of 64 bits."""
    data: Any = x.detach().as_strided((x.numel(),), (1,)).view(torch.uint8)
    whole = data.numel() // 8 * 8 if x.data_ptr() % 8 == 0 else 0
    if whole:
        yield from data[:whole].view(torch.int64).split(WORDS)
    for part in data[whole:].split(WORDS):
        yield part.long()
