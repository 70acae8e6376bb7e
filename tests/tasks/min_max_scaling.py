# kind: reduction
# level: 1
# why: the least and the greatest of drawn values are the same with a block left out
import torch
import torch.nn as nn


class Model(nn.Module):
    """A tensor's values between 0 and 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.min()) / (x.max() - x.min())


ROWS = 128
COLUMNS = 250


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
