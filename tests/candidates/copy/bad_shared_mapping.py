# kind: robustness
# policy: kernelbench
# expect: class=oom|timeout stage=compile
# what: touches 100 GB that no resource limit counts: anonymous mappings, shared
import torch
import torch.nn as nn
import triton
import triton.language as tl
import mmap


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def misbehave():
    held = []
    for _ in range(100):
        held.append(mmap.mmap(-1, 1 << 30))
        for at in range(0, 1 << 30, 4096):
            held[-1][at] = 1


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
