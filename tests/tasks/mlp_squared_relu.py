# kind: pipeline
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """Two linear layers with a squared ReLU between them."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)).square())


ROWS = 20
WIDTH = 24
HIDDEN = 40


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
