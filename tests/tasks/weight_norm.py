# kind: norm
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """The rows of a matrix at given lengths."""

    def __init__(self, rows: int, columns: int):
        super().__init__()
        self.g = nn.Parameter(torch.rand(rows, 1) + 0.5)
        self.v = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.g * self.v / self.v.norm(dim=1, keepdim=True)).t()


BATCH = 10
ROWS = 20
COLUMNS = 36


def get_inputs():
    return [torch.randn(BATCH, COLUMNS)]


def get_init_inputs():
    return [ROWS, COLUMNS]
