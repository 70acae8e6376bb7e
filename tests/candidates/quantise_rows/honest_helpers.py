# kind: honest
# class: ok
# what: several rows in a block, rounding and scale by helpers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_scale(x):
    return tl.maximum(tl.max(tl.abs(x), axis=1), 1e-8) / 127


@triton.jit
def to_nearest(x):
    """Halves to even, by the way floats are spaced from 2^23 on."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def quantise(x_ptr, y_ptr, scale_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
    scale = row_scale(x)
    code = tl.minimum(tl.maximum(to_nearest(x / scale[:, None]), -127.0), 127.0)
    tl.store(y_ptr + r[:, None] * columns + c[None, :], code.to(tl.int8), mask=mask)
    tl.store(scale_ptr + r, scale, mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows, columns), device=x.device, dtype=torch.int8)
        scale = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        quantise[(triton.cdiv(rows, 8),)](x, y, scale, rows, columns, BR=8, BC=triton.next_power_of_2(columns))
        return y, scale
