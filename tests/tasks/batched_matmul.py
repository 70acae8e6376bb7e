# kind: gemm
# level: 1
# why: the second operand is a transposed view
import torch
import torch.nn as nn


class Model(nn.Module):
    """A product for each of a batch."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


BATCH = 3
M = 20
K = 36
N = 28


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, N, K).transpose(1, 2)]


def get_init_inputs():
    return []
