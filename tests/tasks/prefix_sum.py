# kind: scan
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """The running sum of a vector."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=0)


LENGTH = 700


def get_inputs():
    return [torch.randn(LENGTH)]


def get_init_inputs():
    return []
