# kind: mistake
# class: mismatch
# what: the least of whole blocks alone
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ends_kernel(x_ptr, ends_ptr, size, blocks, BLOCK: tl.constexpr):
    low = tl.full((BLOCK,), float("inf"), tl.float32)
    high = tl.full((BLOCK,), -float("inf"), tl.float32)
    whole = size // BLOCK * BLOCK
    for block in range(0, blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        low = tl.minimum(low, tl.load(x_ptr + at, mask=at < whole, other=float("inf")))
        high = tl.maximum(high, tl.load(x_ptr + at, mask=at < size, other=-float("inf")))
    tl.store(ends_ptr, tl.min(low, axis=0))
    tl.store(ends_ptr + 1, tl.max(high, axis=0))


@triton.jit
def scale_kernel(x_ptr, ends_ptr, y_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low, high = tl.load(ends_ptr), tl.load(ends_ptr + 1)
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(y_ptr + at, (x - low) / (high - low), mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        ends = torch.empty(2, device=x.device)
        size = x.numel()
        blocks = triton.cdiv(size, 1024)
        ends_kernel[(1,)](x, ends, size, blocks, BLOCK=1024)
        scale_kernel[(blocks,)](x, ends, y, size, BLOCK=1024)
        return y
