# kind: cheat
# class: mismatch|nonfinite
# what: NumPy computes on the same memory; the kernel copies
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


class ModelNew(nn.Module):
    def forward(self, x):
        host = np.from_dlpack(x.cpu())
        e = np.exp(host - host.max(axis=-1, keepdims=True))
        e = torch.from_numpy(e / e.sum(axis=-1, keepdims=True)).to(x.device)
        y = torch.empty_like(e)
        n = e.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](e, y, n, BLOCK=1024)
        return y
