# kind: norm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Layer normalisation over the last dimension, with its weights."""

    def __init__(self, features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.norm.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.norm.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


batch_size, tokens = 4, 9
features = 770


def get_inputs():
    return [torch.randn(batch_size, tokens, features)]


def get_init_inputs():
    return [features]
