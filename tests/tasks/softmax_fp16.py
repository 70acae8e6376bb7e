# kind: softmax
# level: 1
# why: most of its answer is below the steps of float16
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


ROWS = 64
COLUMNS = 200


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.float16)]


def get_init_inputs():
    return []
