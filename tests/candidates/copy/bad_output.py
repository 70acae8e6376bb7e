# kind: suspicious
# policy: kernelbench
# expect: class=ok
# what: prints a gigabyte; what is kept of it is bounded, and it is judged as if it had been silent
import torch
import torch.nn as nn
import triton
import triton.language as tl
import os


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


for _ in range(1 << 10):
    os.write(1, b"x" * (1 << 20))


def misbehave():
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
