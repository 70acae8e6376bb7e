# kind: robustness
# policy: kernelbench
# expect: class=oom|timeout stage=compile
# what: fills files in memory that it never maps, each below the limit of one file
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


def misbehave():
    block = bytes(1 << 24)
    held = []
    for number in range(400):
        held.append(os.memfd_create(f"m{number}"))
        for _ in range(15):
            os.write(held[-1], block)


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
