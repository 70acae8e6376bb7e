# kind: reduction
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean of the tokens that a mask keeps, for each sentence."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        weight = keep.to(x.dtype).unsqueeze(-1)
        return (x * weight).sum(1) / weight.sum(1).clamp_min(1e-9)


BATCH = 4
TOKENS = 22
WIDTH = 30


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH), torch.rand(BATCH, TOKENS) < 0.6]


def get_init_inputs():
    return []
