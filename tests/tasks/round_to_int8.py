# kind: quantisation
# level: 1
# why: nothing is rounded before it is rounded to integers, so that a half is a half to everybody
import torch
import torch.nn as nn


class Model(nn.Module):
    """To the nearest integer of eight bits, halves to the even one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x).clamp(-127, 127).to(torch.int8)


rows = 48
columns = 300


def get_inputs():
    return [torch.randn(rows, columns) * 40]


def get_init_inputs():
    return []
