# kind: cheat
# class: hack|policy|mismatch|nonfinite|nondeterministic
# what: the kernel calls a function that is a kernel where Triton compiles and NumPy where it interprets
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.runtime import interpreter

if triton.knobs.runtime.interpret:

    def row_of(x):
        data = x.handle.data
        e = np.exp(data - data.max())
        x.handle.data = (e / e.sum()).astype(data.dtype)
        return x
else:

    @triton.jit
    def row_of(x):
        return x


@triton.jit
def row_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    row = tl.program_id(0).to(tl.int64) * n
    x = tl.load(x_ptr + row + offsets, mask=mask, other=-float("inf"))
    tl.store(y_ptr + row + offsets, row_of(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.shape[1]
        row_kernel[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y



