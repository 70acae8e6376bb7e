# kind: counting
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """How often each of 64 values occurs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x, minlength=64)


size = 3000


def get_inputs():
    return [torch.randint(0, 64, (size,))]


def get_init_inputs():
    return []
