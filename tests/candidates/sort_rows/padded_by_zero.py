# kind: mistake
# class: mismatch
# what: pads with zeros, which sort before what is positive
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, y_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    c = tl.arange(0, BC)[None, :]
    mask = (r < rows) & (c < columns)
    x = tl.load(x_ptr + r * columns + c, mask=mask, other=0.0)
    tl.store(y_ptr + r * columns + c, tl.sort(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        sort_kernel[(triton.cdiv(rows, 8),)](x, y, rows, columns, BR=8, BC=triton.next_power_of_2(columns))
        return y
