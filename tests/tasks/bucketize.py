# kind: search
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Between which of the sorted edges each value lies."""

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(x, edges)


COUNT, EDGES = 700, 9


def get_inputs():
    return [torch.randn(COUNT), torch.linspace(-2, 2, EDGES)]


def get_init_inputs():
    return []
