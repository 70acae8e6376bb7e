"""What the clock's gather is asked to read, and what is made of it: the library's part is played here, on the host."""

from __future__ import annotations

import ctypes
import errno
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from shared import native, values

WIDTHS = (1, 2, 4, 8)
"""Those of native/gpu.c."""


class Library:
    """Its gather: elements of WIDTHS bytes into slots of 8, no more than it was set up for."""

    def __init__(self) -> None:
        self.most = 0
        self.slots: list[bytes] = []

    def harness_error(self) -> bytes:
        return b"as gpu.c says"

    def harness_gather_setup(self, most: int) -> int:
        self.most = most
        return 0

    def harness_gather_set(self, pointers: int, widths: ctypes.Array[ctypes.c_uint32], n: int) -> int:
        addresses = (ctypes.c_uint64 * n).from_address(pointers)
        pairs = list(zip(addresses, widths, strict=True))
        if n > self.most or any(width not in WIDTHS or address % width for address, width in pairs):
            return -errno.EINVAL
        self.slots = [ctypes.string_at(address, width).ljust(8, b"\xff") for address, width in pairs]
        return 0

    def harness_gather_read(self, out: int, n: int) -> int:
        if n > len(self.slots):
            return -errno.EINVAL
        ctypes.memmove(out, b"".join(self.slots[:n]), 8 * n)
        return 0


@pytest.mark.parametrize("dtype", values.DTYPES.values(), ids=str)
def test_elements_of_every_type_that_a_task_may_have_are_gathered(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Issue 21, point 6: an output of complex128 ended the referee."""
    monkeypatch.setattr(native, "_lib", Library())
    bytes_ = torch.randint(0, 2 if dtype is torch.bool else 256, (64 * dtype.itemsize,), dtype=torch.uint8)
    output, places = bytes_.view(dtype), torch.randint(0, 64, (32,))
    native.gather_setup(places.numel())
    native.gather_set_pointers(output.data_ptr() + dtype.itemsize * places, dtype.itemsize)
    found = native.gather_read(places.numel(), dtype)
    assert found.dtype is dtype and found.shape == places.shape
    wanted = output[places] if dtype.itemsize != 1 else bytes_[places].view(dtype)
    assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))
