# kind: attention
# level: 2
# policy: hybrid
# why: attention and products by a library, at widths that its attention takes and at others
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return F.silu(self.out(y.transpose(0, 1)))


def get_inputs():
    return [torch.randn(2, 12, 32)]


def get_init_inputs():
    return [32, 4]
