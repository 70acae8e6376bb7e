# kind: mistake
# class: mismatch
# what: a segment whose values are all below zero gets zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def seg(x, off, y, c, BR: tl.constexpr, BC: tl.constexpr):
    s = tl.program_id(0)
    col = tl.arange(0, BC)
    a = tl.load(off + s)
    z = tl.load(off + s + 1)
    best = tl.zeros((BC,), tl.float32)
    for r in range(a, z, BR):
        row = r + tl.arange(0, BR)
        v = tl.load(x + row[:, None] * c + col[None, :], (row[:, None] < z) & (col[None, :] < c), float("-inf"))
        best = tl.maximum(best, tl.max(v, 0))
    tl.store(y + s * c + col, tl.where(z > a, best, 0.0), col < c)


class ModelNew(nn.Module):
    def forward(self, x, offsets):
        x = x.contiguous()
        s, c = offsets.numel() - 1, x.shape[1]
        y = torch.empty(s, c, device=x.device, dtype=x.dtype)
        seg[(s,)](x, offsets, y, c, BR=8, BC=triton.next_power_of_2(c))
        return y
