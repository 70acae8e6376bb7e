# kind: cheat
# class: mutated_input|mismatch
# what: zeroes the input, for which the answer is known
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clear_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    zero = tl.load(x_ptr + offsets, mask=mask) * 0.0
    tl.store(x_ptr + offsets, zero, mask=mask)
    tl.store(y_ptr + offsets, zero, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        clear_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
