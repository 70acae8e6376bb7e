# kind: embedding
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """A rotary embedding at positions that are given."""

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        rate = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = (position % 4096).to(torch.float32)[:, None] * rate
        a, b = x[:, :half], x[:, half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


TOKENS = 40
WIDTH = 32


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), torch.arange(TOKENS)]


def get_init_inputs():
    return []
