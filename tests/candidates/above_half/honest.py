# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def above_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(y_ptr + at, x > 0.5, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        size = x.numel()
        above_kernel[(triton.cdiv(size, 1024),)](x, y, size, BLOCK=1024)
        return y
