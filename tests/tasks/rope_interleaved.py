# kind: embedding
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A rotary embedding of neighbours, by a cache of cosines and sines."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        c, s = cos[None, :, None, :], sin[None, :, None, :]
        return torch.stack([even * c - odd * s, odd * c + even * s], dim=-1).flatten(-2)


BATCH = 2
TOKENS = 9
HEADS = 3
PAIRS = 10


def get_inputs():
    angle = torch.rand(TOKENS, PAIRS) * 6
    return [torch.randn(BATCH, TOKENS, HEADS, 2 * PAIRS), torch.cos(angle), torch.sin(angle)]


def get_init_inputs():
    return []
