# kind: honest
# class: ok
# what: sums by atomics, then a launch that divides
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def square_sum(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        total += tl.sum(x * x, axis=0)
    tl.atomic_add(total_ptr, total)


@triton.jit
def divide(x_ptr, total_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = 1.0 / tl.maximum(tl.sqrt(tl.load(total_ptr)), 1e-6)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * scale, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        total = torch.zeros(1, device=x.device, dtype=torch.float32)
        y = torch.empty_like(x)
        square_sum[(4,)](x, total, n, BLOCK=256)
        divide[(triton.cdiv(n, 512),)](x, total, y, n, BLOCK=512)
        return y
