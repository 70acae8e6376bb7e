# kind: gemm
# level: 3
# policy: hybrid
# why: two weights of the same shape (a candidate that mixes them up is wrong), and one tied weight under two names
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Two square layers around a GELU, and a third that shares the first one's weight."""

    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.tied = nn.Linear(width, width, bias=False)
        self.tied.weight = self.up.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(self.down(F.gelu(self.up(x))))


batch_size = 40
width = 64


def get_inputs():
    return [torch.randn(batch_size, width)]


def get_init_inputs():
    return [width]
