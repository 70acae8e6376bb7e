# kind: attention
# level: 3
import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal scaled dot-product attention over several heads."""

    def __init__(self, head_width: int):
        super().__init__()
        self.scale = head_width ** -0.5

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        tokens = q.shape[-2]
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        return torch.matmul(torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1), v)


BATCH = 2
HEADS = 3
TOKENS = 70
HEAD_WIDTH = 32


def get_inputs():
    shape = (BATCH, HEADS, TOKENS, HEAD_WIDTH)
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [HEAD_WIDTH]
