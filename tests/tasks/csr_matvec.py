# kind: sparse
# level: 1
# why: rows of a sparse matrix, some of them empty
import torch
import torch.nn as nn


class Model(nn.Module):
    """A sparse matrix of compressed rows by a vector."""

    def forward(
        self, start: torch.Tensor, column: torch.Tensor, value: torch.Tensor, x: torch.Tensor
    ) -> torch.Tensor:
        at = torch.arange(value.shape[0], device=value.device)
        row = torch.searchsorted(start, at, right=True) - 1
        rows = start.shape[0] - 1
        return torch.zeros(rows, device=x.device, dtype=x.dtype).index_add_(0, row, value * x[column])


ROWS = 25
COLUMNS = 30
ENTRIES = 150


def get_inputs():
    cuts = torch.sort(torch.randint(0, ENTRIES + 1, (ROWS - 1,))).values
    start = torch.cat([torch.tensor([0, 0]), cuts[1:], torch.tensor([ENTRIES])])
    return [start, torch.randint(0, COLUMNS, (ENTRIES,)), torch.randn(ENTRIES), torch.randn(COLUMNS)]


def get_init_inputs():
    return []
