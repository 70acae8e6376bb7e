# kind: gemm
# level: 1
# why: fp16 in and out
import torch
import torch.nn as nn


class Model(nn.Module):
    """A square-ish product of two half-precision matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


M = 16 * 5
K = 96
N = 112


def get_inputs():
    return [torch.randn(M, K, dtype=torch.float16), torch.randn(K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
