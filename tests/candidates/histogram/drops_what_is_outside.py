# kind: mistake
# class: mismatch|nonfinite
# what: drops what is outside of all bins
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    place = tl.minimum(tl.maximum(tl.floor((x + 4.0) * 4.0), 0.0), 31.0).to(tl.int32)
    at = tl.where((x < -4.0) | (x >= 4.0), n, at)
    tl.atomic_add(y_ptr + place, tl.full((BLOCK,), 1, dtype=tl.int64), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros(32, device=x.device, dtype=torch.int64)
        histogram_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
