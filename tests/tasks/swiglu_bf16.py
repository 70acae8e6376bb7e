# kind: gemm
# level: 2
# why: bf16 in and out; two inputs of which one comes transposed
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """silu(gate) * value. The gate arrives as a transposed view."""

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.silu(gate) * value


TOKENS = 36
WIDTH = 400


def get_inputs():
    gate = torch.randn(WIDTH, TOKENS).to(torch.bfloat16).t()
    value = torch.randn(TOKENS, WIDTH).to(torch.bfloat16)
    return [gate, value]


def get_init_inputs():
    return []
