# kind: norm
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A residual is added, and the sum is normalised: both are returned."""

    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + 1e-6)
        return total * scale * self.weight, total


ROWS = 24
FEATURES = 200


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
