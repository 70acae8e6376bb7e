# kind: norm
# level: 1
# why: changes its input by sums of which only the size of the inputs says how exact they are
import torch
import torch.nn as nn

ROWS = 20
COLUMNS = 80


class Model(nn.Module):
    """Rows of mean 0 and length 1, in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.sub_(x.mean(-1, keepdim=True))
        x.div_(x.norm(dim=-1, keepdim=True) + 1e-6)
        return x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
