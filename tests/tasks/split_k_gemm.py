# kind: gemm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A product with few rows and a long inner dimension."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w


M = 20
N = 24
K = 200


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
