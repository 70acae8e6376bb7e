# kind: attention
# level: 3
import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention in fp16 over the last WINDOW tokens."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        at = torch.arange(q.shape[-2], device=q.device)
        distance = at[:, None] - at[None, :]
        scores = scores.masked_fill((distance < 0) | (distance >= 16), float("-inf"))
        return torch.softmax(scores, dim=-1).to(q.dtype) @ v


HEADS = 2
TOKENS = 50
WIDTH = 32


def get_inputs():
    shape = (1, HEADS, TOKENS, WIDTH)
    return [torch.randn(shape, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return []
