# kind: reduction
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """The distances of all rows of one matrix from all of another."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a[:, None, :] - b[None, :, :]).square().sum(-1).sqrt()


A = 14
B = 18
WIDTH = 24


def get_inputs():
    return [torch.randn(A, WIDTH), torch.randn(B, WIDTH)]


def get_init_inputs():
    return []
