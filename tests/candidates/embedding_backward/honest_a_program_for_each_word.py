# kind: honest
# class: ok
# what: each word looks for its tokens: no atomics, nothing to zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def word_kernel(token_ptr, dy_ptr, dw_ptr, tokens, width, BT: tl.constexpr, BD: tl.constexpr):
    word = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    total = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, tokens, BT):
        t = start + tl.arange(0, BT)
        token = tl.load(token_ptr + t, mask=t < tokens, other=0)
        mine = (token == word) & (token != 0)
        dy = tl.load(dy_ptr + t[:, None] * width + d[None, :], mask=mine[:, None] & (d[None, :] < width), other=0.0)
        total += tl.sum(dy, axis=0)
    tl.store(dw_ptr + word * width + d, total, mask=d < width)


class ModelNew(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, token, dy):
        token, dy = token.contiguous(), dy.contiguous()
        width = dy.shape[-1]
        dw = torch.empty((self.vocabulary, width), dtype=dy.dtype, device=dy.device)
        word_kernel[(self.vocabulary, triton.cdiv(width, 16))](token, dy, dw, token.numel(), width, BT=32, BD=16)
        return dw
