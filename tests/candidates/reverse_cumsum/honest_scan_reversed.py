# kind: honest
# class: ok
# what: the language's scan in reverse over blocks of rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reverse_scan(x_ptr, y_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    at = r[:, None] * columns + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(y_ptr + at, tl.cumsum(x, axis=1, reverse=True), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        reverse_scan[(triton.cdiv(rows, 4),)](x, y, rows, columns, BR=4, BC=triton.next_power_of_2(columns))
        return y
