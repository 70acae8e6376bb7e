# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares_kernel(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(x * x, axis=0))


@triton.jit
def divide_kernel(x_ptr, part_ptr, y_ptr, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, PARTS)
    length = tl.sqrt(tl.sum(tl.load(part_ptr + part, mask=part < parts, other=0.0), axis=0))
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x / tl.maximum(length, 1e-6), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        programs = triton.cdiv(n, 256)
        parts = torch.empty((programs,), device=x.device, dtype=torch.float32)
        y = torch.empty_like(x)
        squares_kernel[(programs,)](x, parts, n, BLOCK=256)
        divide_kernel[(programs,)](x, parts, y, n, programs, BLOCK=256, PARTS=triton.next_power_of_2(programs))
        return y
