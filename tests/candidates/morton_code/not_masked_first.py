# kind: mistake
# class: mismatch
# what: what is above 16 bits gets into the answer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def spread(v):
    v = (v | (v << 8)) & 0x00FF00FF
    v = (v | (v << 4)) & 0x0F0F0F0F
    v = (v | (v << 2)) & 0x33333333
    return (v | (v << 1)) & 0x55555555


@triton.jit
def morton(x, y, z, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    m = at < n
    a = tl.load(x + at, m, 0).to(tl.int64)
    b = tl.load(y + at, m, 0).to(tl.int64)
    tl.store(z + at, spread(a) | (spread(b) << 1), m)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        z = torch.empty(x.shape, device=x.device, dtype=torch.int64)
        morton[(triton.cdiv(x.numel(), 256),)](x, y, z, x.numel(), B=256)
        return z
