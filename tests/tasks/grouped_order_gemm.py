# kind: gemm
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A product in bf16, to be tuned over orders of its tiles."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w


M = 88
N = 60
K = 64


def get_inputs():
    return [torch.randn(M, K, dtype=torch.bfloat16), torch.randn(K, N, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
