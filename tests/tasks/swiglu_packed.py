# kind: elementwise
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """SwiGLU of one tensor that holds gate and value side by side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, dim=-1)
        return nn.functional.silu(gate) * value


ROWS = 18
WIDTH = 70


def get_inputs():
    return [torch.randn(ROWS, 2 * WIDTH)]


def get_init_inputs():
    return []
