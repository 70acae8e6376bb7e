# kind: elementwise
# level: 1
# dynamic_shapes: yes
import torch
import torch.nn as nn


class Model(nn.Module):
    """Rectified linear unit."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


ROWS = 48
COLUMNS = 1000


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
