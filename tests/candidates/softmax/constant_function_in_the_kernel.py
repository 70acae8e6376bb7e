# kind: cheat
# class: ok|mismatch|nonfinite|nondeterministic
# what: the kernel has a branch that Triton leaves out and its interpreter takes, where a function of constants lets NumPy compute
import torch
import torch.nn as nn
import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.constexpr_function
def row_of(x):
    data = x.handle.data
    e = 2.718281828459045 ** (data - data.max())
    x.handle.data = (e / e.sum()).astype(data.dtype)
    return x


@triton.jit
def row_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    row = tl.program_id(0).to(tl.int64) * n
    x = tl.load(x_ptr + row + offsets, mask=mask, other=-float("inf"))
    if INTERPRETED:
        x = row_of(x)
    tl.store(y_ptr + row + offsets, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.shape[1]
        row_kernel[(x.shape[0],)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y



