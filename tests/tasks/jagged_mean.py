# kind: reduction
# level: 1
# why: sequences of several lengths side by side, some of them empty
import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean of each sequence's rows."""

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[0], device=x.device)
        owner = torch.searchsorted(offsets, at, right=True) - 1
        sequences = offsets.shape[0] - 1
        total = torch.zeros(sequences, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, owner, x)
        return total / offsets.diff().clamp_min(1)[:, None]


SEQUENCES = 7
ROWS = 50
WIDTH = 20


def get_inputs():
    cuts = torch.sort(torch.randint(0, ROWS + 1, (SEQUENCES - 1,))).values
    return [torch.randn(ROWS, WIDTH), torch.cat([torch.tensor([0, 0]), cuts[1:], torch.tensor([ROWS])])]


def get_init_inputs():
    return []
