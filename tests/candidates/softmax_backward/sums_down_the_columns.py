# kind: mistake
# class: mismatch
# what: sums over the rows of its block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    at = r[:, None] * columns + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0)
    weighted = y * dy
    tl.store(dx_ptr + at, weighted - y * tl.sum(weighted, axis=0)[None, :], mask=mask)


class ModelNew(nn.Module):
    def forward(self, dy, y):
        dy, y = dy.contiguous(), y.contiguous()
        rows, columns = y.shape
        dx = torch.empty_like(y)
        backward_kernel[(triton.cdiv(rows, 4),)](dy, y, dx, rows, columns, BR=4, BC=triton.next_power_of_2(columns))
        return dx
