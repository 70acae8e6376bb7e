# kind: norm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Normalised by statistics that training would have gathered."""

    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("mean_ema", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean_ema) * self.scale


ROWS, FEATURES = 70, 20


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
