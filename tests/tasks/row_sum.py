# kind: reduction
# level: 1
# dynamic_shapes: yes
import torch
import torch.nn as nn


class Model(nn.Module):
    """Sum of each row, the reduced dimension kept."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=self.dim, keepdim=True)


batch_size = 40
features = 1300
reduce_dim = 1


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [reduce_dim]
