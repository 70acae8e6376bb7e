# kind: convolution
# level: 2
# policy: hybrid
import torch
import torch.nn as nn


class Model(nn.Module):
    """Convolution, batch normalisation in training mode (statistics of this batch), ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


batch_size = 4
in_channels = 8
out_channels = 16
height, width = 20, 22
kernel_size = 3


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
