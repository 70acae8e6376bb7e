# kind: norm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Each channel of each image by its own mean and variance, with scale and shift."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


BATCH = 3
CHANNELS = 5
HEIGHT = 7
WIDTH = 9


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
