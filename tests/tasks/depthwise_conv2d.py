# kind: convolution
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Each channel by a 3x3 filter of its own, every second place, with bias."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


BATCH = 2
CHANNELS = 3
HEIGHT = 9
WIDTH = 12


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
