# kind: convolution
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A 1x1 convolution with bias."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


batch_size = 3
in_channels = 24
out_channels = 40
height = 13
width = 17


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
