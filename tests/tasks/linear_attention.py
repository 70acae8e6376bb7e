# kind: scan
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal attention without a softmax: each query meets the sum of the outer products so far."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tril(q @ k.transpose(-2, -1)) @ v


HEADS = 3
TOKENS = 40
WIDTH = 16


def get_inputs():
    return [torch.randn(HEADS, TOKENS, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
