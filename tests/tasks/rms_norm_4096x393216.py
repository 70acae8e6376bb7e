# kind: norm
# level: 1
# needs: gpu
# why: a reduction over rows that do not fit into registers, six gigabytes in and out
import torch
import torch.nn as nn


class Model(nn.Module):
    """x divided by the root mean square of its row."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + self.eps)


batch_size = 4096
dim = 393216
eps = 1e-5


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return [eps]
