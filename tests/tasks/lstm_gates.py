# kind: elementwise
# level: 2
# why: sigmoids and tanhs whose answers are far smaller than what stands on the way
import torch
import torch.nn as nn


class Model(nn.Module):
    """The step of an LSTM after its products: gates as torch orders them, hidden and cell state."""

    def forward(self, gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        take, keep, new, show = gates.chunk(4, 1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(take) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(cell), cell


rows = 16
width = 64


def get_inputs():
    return [torch.randn(rows, 4 * width), torch.randn(rows, width)]


def get_init_inputs():
    return []
