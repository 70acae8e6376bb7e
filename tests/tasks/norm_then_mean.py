# kind: normalisation
# level: 2
# why: KernelBench level 2, number 23: with the weights of a new GroupNorm the answer is rounding error alone
import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean of each sample, of which groups of channels were normed."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.group_norm(x).mean(dim=[1, 2, 3])


BATCH = 48
CHANNELS = 8
GROUPS = 2
SIDE = 6


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
