# kind: robustness
# policy: kernelbench
# expect: class=oom|timeout stage=compile
# what: sixteen processes, each below the limit of one process
import torch
import torch.nn as nn
import triton
import triton.language as tl
import os
import time


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def misbehave():
    for _ in range(4):
        getattr(os, "fo" + "rk")()
    hoard = []
    for _ in range(40):
        hoard.append(bytearray(b"x" * (1 << 24)))
    time.sleep(60)


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
