# kind: map
# why: an input that is a slice, and so has gaps, and one that is a dtype
import torch
import torch.nn as nn

TOKENS = 11


class Model(nn.Module):
    def forward(self, qkv: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        q, k, v = qkv.unbind(2)
        return (torch.sigmoid(q) * k - v).to(dtype)


def get_inputs():
    return [torch.randn(2, TOKENS, 3, 4, 8)[:, 1:], torch.float16]


def get_init_inputs():
    return []
