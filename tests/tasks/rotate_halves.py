# kind: embedding
# level: 2
# why: a list of outputs
import torch
import torch.nn as nn


class Model(nn.Module):
    """The two halves of a rotary embedding, as a list."""

    def forward(self, x: torch.Tensor, angle: torch.Tensor) -> list[torch.Tensor]:
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        cos, sin = torch.cos(angle), torch.sin(angle)
        return [a * cos - b * sin, a * sin + b * cos]


TOKENS = 40
HALF = 64


def get_inputs():
    return [torch.randn(TOKENS, 2 * HALF), torch.rand(TOKENS, HALF)]


def get_init_inputs():
    return []
