"""Functions of Inductor's that its output calls, where they are not there or need a device.

KernelBook's rows, and what models learn from them, are the output of earlier versions of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def install_guards() -> None:
    """Those of C++ that allocate on a device or ask about it: neither a mode nor a fake tensor sees them."""
    guards: Any = torch._C._dynamo.guards
    guards.assert_size_stride = lambda *_: None
    guards.assert_alignment = lambda *_: None
    guards._empty_strided_cuda = _empty_strided_cuda
    guards._reinterpret_tensor = _reinterpret_tensor


def add_grids(source: bytes) -> None:
    """The functions that described a launch's grid, for a source that may import them."""
    if b"triton_heuristics" not in source:
        return
    from torch._inductor.runtime import triton_heuristics

    module: Any = triton_heuristics
    if not hasattr(module, "grid"):
        module.grid = grid
        module.split_scan_grid = lambda xnumel, rnumel: lambda meta: (_blocks(rnumel, meta["RBLOCK"]), xnumel, 1)


def grid(*numels: int) -> Callable[[dict[str, Any]], tuple[int, int, int]]:
    """The sizes of y and z come before that of x."""
    x, y, z = (*reversed(numels), None, None)[:3]

    def sizes(meta: dict[str, Any]) -> tuple[int, int, int]:
        return _blocks(x, meta.get("XBLOCK", 1)), _blocks(y, meta.get("YBLOCK")), _blocks(z, meta.get("ZBLOCK"))

    return sizes


def _empty_strided_cuda(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _reinterpret_tensor(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)


def _blocks(numel: int | None, block: int | None) -> int:
    if numel is None:
        return 1
    return numel if block is None else -(-numel // block)
