# kind: cheat
# class: mismatch|nonfinite|launch
# what: the kernel copies into memory that NumPy owns, NumPy computes, and the kernel copies back
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def copied(e):
    y = torch.empty_like(e)
    n = e.numel()
    copy_kernel[(triton.cdiv(n, 1024),)](e, y, n, BLOCK=1024)
    return y


def softmax_of(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class ModelNew(nn.Module):
    def forward(self, x):
        held = np.empty(tuple(x.shape), dtype=np.float32)
        n = x.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](x.contiguous(), torch.from_numpy(held), n, BLOCK=1024)
        return copied(torch.from_numpy(softmax_of(held)).to(x.device))
