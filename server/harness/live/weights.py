"""Other weights: parameters that a constructor makes constant get values that differ from each other.

Another seed changes the random values, but norms begin as ones and zeros whatever the seed: a kernel that leaves them
out is right by luck. Here such a parameter becomes v * (1 + u / 4) + w / 4, u and w being public numbers in [0, 1)
that depend on nothing but an element's index. So a candidate's parameter of another name, or of another shape with the
same elements, gets the same values as the reference's; no value becomes negative if all were positive; and since it
happens as soon as the parameter is made, a constructor that packs it packs the new values. The same happens to a
reference's buffer in the state dict that has one number for each channel, all zeros or all ones: such are statistics
of a model that was not trained. A candidate's buffer gets its values by name; one of another name may have any values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from shared import values
from shared.plan import BUFFER

PERIOD: Final = 4096
SHARE: Final = 0.25
STATISTICS: Final = ("running_mean", "running_var")
"""Buffers that are weights in eval mode, and that a norm fills after it registered them."""
_SEED: Final = 20
_INITIALISERS: Final = ("ones_", "zeros_", "constant_")
_METHODS: Final = ("fill_", "zero_")


def vary(tensor: torch.Tensor) -> bool:
    """Give a constant floating-point tensor its other values, in place; False: it is not constant, and left alone."""
    if not tensor.is_floating_point() or tensor.is_meta or not tensor.numel():
        return False
    if not values.is_dense(tensor):
        return False
    tensor = tensor.detach()
    if not bool((tensor == tensor.reshape(-1)[0]).all()):
        return False
    numbers = torch.rand(2, PERIOD, generator=torch.Generator("cpu").manual_seed(_SEED), device="cpu")
    repeats = -(-tensor.numel() // PERIOD)
    factor, summand = (
        (SHARE * row).to(tensor.device).repeat(repeats)[: tensor.numel()].reshape(tensor.shape).to(tensor.dtype)
        for row in numbers
    )
    tensor.add_(tensor * factor).add_(summand)
    return True


def vary_made(tensor: torch.Tensor, name: str) -> None:
    """A tensor that a candidate's plan made, or wrote to: a parameter, or running statistics."""
    if not name.startswith(BUFFER) or name.removeprefix(BUFFER).rpartition(".")[2] in STATISTICS:
        vary(tensor)


def _is_statistic(buffer: torch.Tensor) -> bool:
    """At most one dimension is longer than one, and all is 0 or all is 1: no mask, filter or cache is so."""
    if buffer.is_meta or sum(size > 1 for size in buffer.shape) > 1:
        return False
    return bool((buffer == 0).all() or (buffer == 1).all())


def vary_rest(model: Any) -> None:
    """Vary what is still constant in a model: parameters that were filled in other ways, and running statistics.

    One-element parameters are always constant: these were handled when they were made.
    """
    if not isinstance(model, torch.nn.Module):
        return
    for parameter in model.parameters():
        if parameter.numel() > 1:
            vary(parameter)
    for name, buffer in model.named_buffers():
        if name.rpartition(".")[2] in STATISTICS:
            vary(buffer)


@contextmanager
def varied(*, statistics: bool) -> Iterator[None]:
    """Around a constructor: parameters are varied as they are made or filled, by torch.nn.init or a method.

    statistics: a reference's, whose buffers are varied as they are registered.
    """
    make, register = torch.nn.Parameter.__new__, torch.nn.Module.register_buffer
    fills = {(torch.nn.init, name): getattr(torch.nn.init, name) for name in _INITIALISERS}
    fills |= {(torch.Tensor, name): getattr(torch.Tensor, name) for name in _METHODS}

    def made(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, torch.Tensor) and not data.requires_grad:
            vary(data)
        return make(cls, data, *args, **kwargs)

    is_filling = False

    def filled(fill: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            """Under a device's context torch calls it once more from inside, which is the same filling."""
            nonlocal is_filling
            is_outer, is_filling = not is_filling, True
            try:
                found = fill(tensor, *args, **kwargs)
            finally:
                is_filling = not is_outer
            if is_outer and isinstance(tensor, torch.nn.Parameter):
                vary(tensor)
            return found

        return call

    def registered(self: Any, name: str, tensor: Any, persistent: bool = True) -> None:
        register(self, name, tensor, persistent)
        if statistics and persistent and isinstance(tensor, torch.Tensor) and _is_statistic(tensor):
            vary(tensor)

    torch.nn.Parameter.__new__ = made
    torch.nn.Module.register_buffer = registered
    for (owner, name), fill in fills.items():
        setattr(owner, name, filled(fill))
    try:
        yield
    finally:
        torch.nn.Parameter.__new__ = make
        torch.nn.Module.register_buffer = register
        for (owner, name), fill in fills.items():
            setattr(owner, name, fill)
