# kind: loss
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Huber's loss, its mean."""

    def __init__(self, delta: float):
        super().__init__()
        self.delta = delta

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.huber_loss(x, target, delta=self.delta)


ROWS = 20
COLUMNS = 45


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) * 2, torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [0.7]
