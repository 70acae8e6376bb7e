# kind: convolution
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A transposed convolution in one dimension that doubles the length."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, filters, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv_transpose1d(x, self.weight, stride=2, padding=1)


BATCH = 2
CHANNELS = 3
FILTERS = 2
LENGTH = 18


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
