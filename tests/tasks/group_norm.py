# kind: norm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Group normalisation with scale and shift for each channel."""

    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


batch = 4
groups = 4
channels = 16
size = 50


def get_inputs():
    return [torch.randn(batch, channels, size)]


def get_init_inputs():
    return [groups, channels]
