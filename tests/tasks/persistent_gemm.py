# kind: gemm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A product in fp16 of many small tiles."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w


M = 70
N = 40
K = 48


def get_inputs():
    return [torch.randn(M, K, dtype=torch.float16), torch.randn(K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
