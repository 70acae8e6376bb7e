# kind: elementwise
# level: 1
# why: parts of the answer are the same whatever the inputs
import torch
import torch.nn as nn


class Model(nn.Module):
    """The lower triangle of a matrix."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(x)


N = 304


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
