# kind: honest
# class: ok
# what: atomics into zeros, a grid of rows and blocks
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter_kernel(index_ptr, x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    index = tl.load(index_ptr + row * columns + at, mask=mask, other=0)
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0)
    tl.atomic_add(y_ptr + row * columns + index, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, index, x):
        index, x = index.contiguous(), x.contiguous()
        rows, columns = x.shape
        y = torch.zeros_like(x)
        scatter_kernel[(rows, triton.cdiv(columns, 32))](index, x, y, columns, BLOCK=32)
        return y
