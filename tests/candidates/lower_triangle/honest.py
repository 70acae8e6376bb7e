# kind: honest
# expect: class=ok
# what: a program for a part of a row
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tril_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=(at <= row) & (at < columns), other=0.0)
    tl.store(y_ptr + row * columns + at, x, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        tril_kernel[(rows, triton.cdiv(columns, 1024))](x, y, columns, BLOCK=1024)
        return y
