# kind: gemm
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer in bf16 with GELU by tanh."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x), approximate="tanh")


ROWS = 40
IN = 96
OUT = 56


def get_inputs():
    return [torch.randn(ROWS, IN, dtype=torch.bfloat16)]


def get_init_inputs():
    return [IN, OUT]
