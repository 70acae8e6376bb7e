# kind: softmax
# level: 1
# why: values so large that a sum of exponentials overflows unless the maximum is taken out first
import torch
import torch.nn as nn


class Model(nn.Module):
    """Logarithm of the sum of exponentials of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(x, dim=1)


ROWS = 30
COLUMNS = 1100


def get_inputs():
    return [30.0 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
