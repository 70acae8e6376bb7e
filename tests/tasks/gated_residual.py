# kind: elementwise
# level: 2
# why: a parameter that its constructor leaves at zero
import torch
import torch.nn as nn


class Model(nn.Module):
    """A residual whose gate is closed at first."""

    def __init__(self, features: int):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gate * torch.tanh(x * self.scale)


rows = 20
features = 300


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
