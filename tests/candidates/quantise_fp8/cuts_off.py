# kind: mistake
# class: mismatch
# what: cuts off the digits that eight bits do not hold, and rounds not
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantise_kernel(x_ptr, y_ptr, scale_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-12) / 448.0
    y = tl.minimum(tl.maximum(x / scale, -448.0), 448.0)
    y = ((y.to(tl.int32, bitcast=True) >> 20) << 20).to(tl.float32, bitcast=True)
    tl.store(y_ptr + row * columns + at, y.to(tl.float8e4nv), mask=at < columns)
    tl.store(scale_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows, columns), device=x.device, dtype=torch.float8_e4m3fn)
        scale = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        quantise_kernel[(rows,)](x, y, scale, columns, BLOCK=triton.next_power_of_2(columns))
        return y, scale
