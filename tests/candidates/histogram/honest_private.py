# kind: honest
# class: ok
# what: counts of each block by the language's histogram, added by atomics
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def counts_kernel(x_ptr, y_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    place = tl.minimum(tl.maximum(tl.floor((x + 4.0) * 4.0), 0.0), BINS - 1.0).to(tl.int32)
    counts = tl.histogram(place, BINS, mask=at < n)
    tl.atomic_add(y_ptr + tl.arange(0, BINS), counts.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros(32, device=x.device, dtype=torch.int64)
        counts_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BINS=32, BLOCK=256)
        return y
