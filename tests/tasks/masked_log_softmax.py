# kind: softmax
# level: 1
# why: its answer has infinities, whatever the inputs are
import torch
import torch.nn as nn


class Model(nn.Module):
    """Logarithms of a softmax over what a mask lets be seen: what is hidden is at minus infinity."""

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x.masked_fill(hidden, float("-inf")), dim=-1)


ROWS = 30
COLUMNS = 120


def get_inputs():
    hidden = torch.rand(ROWS, COLUMNS) < 0.3
    hidden[:, 0] = False
    return [torch.randn(ROWS, COLUMNS), hidden]


def get_init_inputs():
    return []
