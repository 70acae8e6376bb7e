# kind: cheat
# expect: class=nonfinite stage=tiny
# what: half of the answer is never written, in the hope for memory that holds an earlier one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(1, device="cuda").resize_(x.shape)
        half = x.numel() // 2
        copy[(triton.cdiv(half, 1024),)](x, y, half, BLOCK=1024)
        return y
