# kind: elementwise
# level: 1
# why: a bound that inputs of one sign do not reach
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardtanh(x, -1.0, 0.5)


rows = 24
columns = 130


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
