# kind: mistake
# class: mismatch
# what: divides by the number of tokens
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pooled(x_ptr, keep_ptr, y_ptr, tokens, width, BT: tl.constexpr, BD: tl.constexpr):
    sentence = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    total = tl.zeros((BD,), dtype=tl.float32)
    count = 0.0
    for start in range(0, tokens, BT):
        t = start + tl.arange(0, BT)
        keep = tl.load(keep_ptr + sentence * tokens + t, mask=t < tokens, other=0).to(tl.float32)
        at = (sentence * tokens + t[:, None]) * width + d[None, :]
        x = tl.load(x_ptr + at, mask=(t[:, None] < tokens) & (d[None, :] < width), other=0.0)
        total += tl.sum(x * keep[:, None], axis=0)
        count += tl.sum(keep, axis=0)
    tl.store(y_ptr + sentence * width + d, total / tokens, mask=d < width)


class ModelNew(nn.Module):
    def forward(self, x, keep):
        x, keep = x.contiguous(), keep.contiguous()
        batch, tokens, width = x.shape
        y = torch.empty((batch, width), device=x.device, dtype=x.dtype)
        pooled[(batch, triton.cdiv(width, 16))](x, keep.view(torch.uint8), y, tokens, width, BT=16, BD=16)
        return y
