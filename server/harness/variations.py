"""How the inputs of a correctness case differ from the task's own: transformed by the referee, in place.

Only floating-point tensors are touched; integers are indices or classes, and a changed one would be another
task. Structure that a task may promise is kept: zeros stay zeros (triangular inputs), a symmetric matrix stays
symmetric. Whether a transformation is legal for a task is not decided here: the reference must be finite on it
and agree with itself in fp64, else another takes its place (judge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

SPIKE: Final = {torch.float64: 1e6, torch.float32: 131072.0, torch.bfloat16: 131072.0, torch.float16: 8.0}
"""Factor of a spike. In float32 it leaves the range of float16, so that half precision inside shows."""
SPIKE_SHARE: Final = 1e-4
ROW_SHARE: Final = 0.125
SAMPLE: Final = 65536
CHUNK: Final = 1 << 28
"""Elements handled at once, so that a large input needs little memory beside itself."""


def _generator(tensor: torch.Tensor, seed: int) -> torch.Generator:
    generator = torch.Generator(device=tensor.device)
    generator.manual_seed(seed & (1 << 62) - 1)
    return generator


def _flat(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements in memory order, as a view; None for a tensor with gaps."""
    if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return None
    return tensor.as_strided((tensor.numel(),), (1,))


def is_symmetric(tensor: torch.Tensor) -> bool:
    """A square matrix (last two dimensions) that equals its transpose."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2:
        return False
    return bool(torch.equal(tensor, tensor.transpose(-1, -2)))


def scaled(tensor: torch.Tensor, seed: int) -> None:
    """Every value doubled."""
    tensor.mul_(2.0)


def signs(tensor: torch.Tensor, seed: int) -> None:
    """Signs mixed: each value negated with probability 1/2."""
    flat = _flat(tensor)
    if flat is None or is_symmetric(tensor):
        tensor.neg_()
        return
    generator = _generator(tensor, seed)
    for part in flat.split(CHUNK):
        flips = torch.randint(0, 2, part.shape, generator=generator, device=part.device, dtype=torch.int8)
        part.mul_(flips.mul_(2).sub_(1).to(part.dtype))


def spikes(tensor: torch.Tensor, seed: int) -> None:
    """A few values multiplied by a large factor at secret places, and some rows made constant."""
    flat = _flat(tensor)
    if flat is None or is_symmetric(tensor):
        tensor.mul_(4.0)
        return
    if tensor.dim() >= 2 and bool((tensor != 0).all()):
        rows = min(64, max(1, int(tensor.shape[0] * ROW_SHARE)))
        order = torch.randperm(tensor.shape[0], generator=_generator(tensor, seed + 1), device=tensor.device)
        for row in order[:rows].tolist():
            tensor[row] = tensor[row].flatten()[0].item()
    sparse(tensor, seed)


def sparse(tensor: torch.Tensor, seed: int) -> None:
    """Multiply a few values at secret places by a large factor: zeros stay zeros. Symmetric matrices are left alone."""
    flat = _flat(tensor)
    if flat is None or not flat.numel() or is_symmetric(tensor):
        return
    count = max(2, int(flat.numel() * SPIKE_SHARE))
    places = torch.randint(0, flat.numel(), (count,), generator=_generator(tensor, seed), device=tensor.device)
    spiked = flat[places] * SPIKE.get(tensor.dtype, 2.0)
    if bool((flat[:: max(1, flat.numel() // SAMPLE)] < 0).any()):
        # Where both signs are legal, both are there: an exp overflows on one side only.
        # Far apart, so that no product of rows has both: their difference would drown every rounding.
        places[1] = (places[0] + flat.numel() // 2) % flat.numel()
        spiked[0], spiked[1] = spiked[0].abs(), -(flat[places[1]] * SPIKE.get(tensor.dtype, 2.0)).abs()
    flat[places] = spiked


Transform = Callable[[torch.Tensor, int], None]
TRANSFORMS: Final[dict[str, Transform]] = {"signs": signs, "scaled": scaled, "spikes": spikes}


def apply(name: str, tensors: list[torch.Tensor], seed: int) -> bool:
    """Transform all floating-point tensors; False when there is none, so that the variation would change nothing."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    for index, tensor in enumerate(floats):
        TRANSFORMS[name](tensor, seed + index)
    return bool(floats)
