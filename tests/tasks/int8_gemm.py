# kind: quantisation
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A product of bytes, summed as integers, by a scale."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x.double() @ w.double()).float() * scale


M = 24
N = 40
K = 64


def get_inputs():
    x, w = torch.randint(-8, 8, (M, K), dtype=torch.int8), torch.randint(-8, 8, (K, N), dtype=torch.int8)
    return [x, w, torch.rand(N)]


def get_init_inputs():
    return []
