# kind: honest
# class: ok
# what: partial sums of parts of the rows, then a second kernel adds them
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sums(x_ptr, part_ptr, rows, columns, parts, BR: tl.constexpr, BLOCK: tl.constexpr):
    r, part = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1)
    c = part * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
    tl.store(part_ptr + r * parts + part, tl.sum(x, axis=1), mask=r < rows)


@triton.jit
def final_sums(part_ptr, y_ptr, rows, parts, BR: tl.constexpr, BLOCK: tl.constexpr):
    r, p = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (p[None, :] < parts)
    x = tl.load(part_ptr + r[:, None] * parts + p[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + r, tl.sum(x, axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        parts = triton.cdiv(columns, 512)
        scratch = x.new_empty((rows, parts))
        y = x.new_empty((rows, 1))
        partial_sums[(triton.cdiv(rows, 8), parts)](x, scratch, rows, columns, parts, BR=8, BLOCK=512)
        final_sums[(triton.cdiv(rows, 32),)](scratch, y, rows, parts, BR=32, BLOCK=triton.next_power_of_2(parts))
        return y
