# kind: convolution
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A 3x3 convolution with a border of zeros, as one product."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, padding=1)


CHANNELS = 5
FILTERS = 12
SIDE = 9


def get_inputs():
    return [torch.randn(2, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
