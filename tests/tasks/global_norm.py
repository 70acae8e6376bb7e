# kind: pipeline
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """Everything by its common length, in two kernels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.square().sum().sqrt().clamp_min(1e-6)


ROWS = 30
COLUMNS = 70


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
