# kind: mistake
# class: mismatch|nonfinite
# what: divides by a length whose square is a difference of sums
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unit_kernel(x_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row_ptr = x_ptr + tl.program_id(0) * columns + at
    x = tl.load(row_ptr, mask=inside, other=0.0)
    mean = tl.sum(x) / columns
    tl.store(row_ptr, (x - mean) / (tl.sqrt(tl.sum(x * x) - columns * mean * mean) + 1e-6), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        unit_kernel[(x.shape[0],)](x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return x
