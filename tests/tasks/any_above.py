# kind: reduction
# level: 1
# why: booleans that are all true, as memory is that nobody has written
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0.5).any(1)


rows = 24
columns = 130


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
