# kind: loss
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """The divergence of each row from its target, where 0 log 0 is 0."""

    def forward(self, log_input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target = target.abs()
        return (torch.xlogy(target, target) - target * log_input).sum(dim=-1)


ROWS = 30
COLUMNS = 90


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
