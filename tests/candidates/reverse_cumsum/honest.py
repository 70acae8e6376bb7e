# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, columns, BLOCK):
        at = columns - 1 - start - tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at >= 0, other=0.0)
        tl.store(y_ptr + row * columns + at, tl.cumsum(x, axis=0) + carry, mask=at >= 0)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        scan_kernel[(rows,)](x, y, columns, BLOCK=64)
        return y
