# kind: elementwise
# level: 1
# why: one of its inputs is never below zero, and where all change their signs the reference is not a number
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A leaky ReLU, weighted, over a standard deviation."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, 0.1) * weight / torch.sqrt(variance + 1e-5)


ROWS = 64
COLUMNS = 200


def get_inputs():
    return [torch.rand(ROWS, COLUMNS) for _ in range(3)]


def get_init_inputs():
    return []
