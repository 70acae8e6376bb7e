# kind: loss
# level: 1
# why: of so many terms one more or less is within every limit
import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean of squared differences."""

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.mean((predictions - targets) ** 2)


ROWS = 128
COLUMNS = 513


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
