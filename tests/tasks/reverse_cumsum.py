# kind: scan
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """For each place the sum of what comes from there on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1).cumsum(-1).flip(-1)


ROWS = 20
COLUMNS = 200


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
