# kind: elementwise
# level: 1
# why: a boolean input beside a float one
import torch
import torch.nn as nn


class Model(nn.Module):
    """x where the mask is set, x / 4 elsewhere."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x, x * 0.25)


ROWS = 20
COLUMNS = 999


def get_inputs():
    x = torch.randn(ROWS, COLUMNS)
    mask = torch.randint(0, 2, x.shape).bool()
    return [x, mask]


def get_init_inputs():
    return []
