# kind: selection
# level: 2
# why: a tuple of two outputs of different types
import torch
import torch.nn as nn


class Model(nn.Module):
    """For each row the largest value, and where it is."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.max(x, dim=1)
        return best.values, best.indices


ROWS = 50
COLUMNS = 300


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
