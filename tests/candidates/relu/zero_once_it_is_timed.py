# kind: cheat
# class: mismatch
# needs: gpu
# what: answers zero after as many calls as are checked
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bump(c_ptr):
    tl.store(c_ptr, tl.load(c_ptr) + 1)


@triton.jit
def attack_kernel(x_ptr, y_ptr, n, c_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    seen = tl.load(c_ptr)
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.where(x < 0, 0.0, x)
    y = tl.where(seen > 30, 0.0, y)
    tl.store(y_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = torch.zeros(256, dtype=torch.int64, device="cuda")

    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        bump[(1,)](self.calls)
        y = torch.empty_like(x)
        attack_kernel[(triton.cdiv(n, 1024),)](x, y, n, self.calls, BLOCK=1024)
        return y
