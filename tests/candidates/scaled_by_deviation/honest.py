# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, weight_ptr, variance_ptr, y_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    weight = tl.load(weight_ptr + at, mask=at < size)
    variance = tl.load(variance_ptr + at, mask=at < size, other=1.0)
    x = tl.where(x > 0, x, 0.1 * x)
    tl.store(y_ptr + at, x * weight / tl.sqrt(variance + 1e-5), mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x, weight, variance):
        y = torch.empty_like(x)
        size = x.numel()
        scaled_kernel[(triton.cdiv(size, 1024),)](x, weight, variance, y, size, BLOCK=1024)
        return y
