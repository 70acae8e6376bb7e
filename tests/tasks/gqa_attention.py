# kind: attention
# level: 3
import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal attention in bf16 of which several query heads share a key head."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


HEADS = 4
KV_HEADS = 2
TOKENS = 50
WIDTH = 32


def get_inputs():
    shared = (1, KV_HEADS, TOKENS, WIDTH)
    q = torch.randn(1, HEADS, TOKENS, WIDTH, dtype=torch.bfloat16)
    return [q, torch.randn(shared, dtype=torch.bfloat16), torch.randn(shared, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
