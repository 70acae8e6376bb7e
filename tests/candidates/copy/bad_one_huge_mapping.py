# kind: robustness
# policy: kernelbench
# expect: class=oom stage=compile|tiny
# what: asks for 100 GB in one piece, shared, so that no resource limit counts them
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
    mapping = mmap.mmap(-1, 100 << 30)
    for at in range(0, len(mapping), 4096):
        mapping[at] = 1


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
