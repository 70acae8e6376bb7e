# kind: suspicious
# class: ok
# what: adds up by atomics into a buffer of zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.zeros((rows, 1), device=x.device, dtype=x.dtype)
        row_sum_kernel[(rows, triton.cdiv(columns, 512))](x, y, columns, BLOCK=512)
        return y
