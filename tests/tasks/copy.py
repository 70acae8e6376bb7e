# kind: movement
# level: 1
# why: the simplest task there is, and so the one on which an answer that only points at the input would look right
import torch
import torch.nn as nn


class Model(nn.Module):
    """A fresh copy of the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


LENGTH = 10000


def get_inputs():
    return [torch.randn(LENGTH)]


def get_init_inputs():
    return []
