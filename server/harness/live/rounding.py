"""A reference in fp64 that errs as one in float32 may: what float32 cannot hold moves by its last digits.

What float32 holds exactly stays, so that an answer which hangs on exact values is the same again, and one which hangs
on how something was rounded is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from shared.values import leaves
from torch.utils._python_dispatch import TorchDispatchMode

DIGITS: Final = 2.0
"""Of float32's last places: so far off is a fast division."""


class Rounding(TorchDispatchMode):
    """While it is active every operator's fp64 results are moved. The global generators' state is left alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for _, leaf in leaves(found):
            if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64 and 0 not in leaf.stride():
                self._move(leaf)
        return found

    def _move(self, exact: torch.Tensor) -> None:
        held = exact.float().double()
        drawn = torch.rand(exact.shape, generator=self._generator(exact.device), device=exact.device)
        by = (drawn.double() * 2 - 1) * DIGITS * torch.finfo(torch.float32).eps
        moved = (held * (1 + by)).float().double()
        exact.copy_(torch.where((held == exact) | ~torch.isfinite(held), exact, moved))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]
