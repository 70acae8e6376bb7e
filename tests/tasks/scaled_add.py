# kind: elementwise
# level: 1
# why: three inputs, one of which is a plain integer
import torch
import torch.nn as nn


class Model(nn.Module):
    """x + alpha * times * y, with alpha fixed at construction and times given for each call."""

    def __init__(self, alpha: float):
        super().__init__()
        self.alpha = alpha

    def forward(self, x: torch.Tensor, y: torch.Tensor, times: int) -> torch.Tensor:
        return x + self.alpha * times * y


ROWS = 32
COLUMNS = 515
ALPHA = 0.5
TIMES = 3


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS), TIMES]


def get_init_inputs():
    return [ALPHA]
