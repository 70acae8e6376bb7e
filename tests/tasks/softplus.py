# kind: elementwise
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """The smooth relative of ReLU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(x)


ROWS = 30
COLUMNS = 70


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
