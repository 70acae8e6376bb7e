# kind: attention
# level: 3
import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal attention in bf16, sums and softmax in float32."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q.float() @ k.float().transpose(-2, -1)) * q.shape[-1] ** -0.5
        at = torch.arange(q.shape[-2], device=q.device)
        scores = scores.masked_fill(at[None, :] > at[:, None], float("-inf"))
        return (torch.softmax(scores, dim=-1) @ v.float()).to(q.dtype)


HEADS = 3
TOKENS = 45
WIDTH = 16


def get_inputs():
    shape = (1, HEADS, TOKENS, WIDTH)
    return [torch.randn(shape, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
