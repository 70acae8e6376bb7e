# kind: movement
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Channels become pixels: twice as high and twice as wide."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pixel_shuffle(x, 2)


BATCH = 2
CHANNELS = 3
HEIGHT = 7
WIDTH = 9


def get_inputs():
    return [torch.randn(BATCH, 4 * CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
