# kind: interpolation
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Twice as large, by bilinear interpolation between the middles of pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


PLANES = 3
HEIGHT = 9
WIDTH = 11


def get_inputs():
    return [torch.randn(1, PLANES, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
