# kind: selection
# level: 1
# why: the answer is int64, and is compared exactly
import torch
import torch.nn as nn


class Model(nn.Module):
    """Index of the largest value of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.argmax(x, dim=1)


ROWS = 33
COLUMNS = 700


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
