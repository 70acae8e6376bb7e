# kind: counting
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """How many values lie in each of 32 bins between -4 and 4; what is outside counts with the outermost."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = ((x + 4.0) * 4.0).floor().clamp(0, 31).long()
        return torch.bincount(at, minlength=32)


VALUES = 700


def get_inputs():
    return [torch.randn(VALUES)]


def get_init_inputs():
    return []
