# kind: elementwise
# level: 1
# why: a boolean that was never written is right by chance
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x > 0.5


ROWS = 64
COLUMNS = 201


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
