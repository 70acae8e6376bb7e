# kind: convolution
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A causal convolution of each channel by itself, then SiLU, as in state space models."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 4))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (3, 0))
        return nn.functional.silu(nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[1]))


BATCH = 2
CHANNELS = 12
TOKENS = 70


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, TOKENS)]


def get_init_inputs():
    return [CHANNELS]
