# kind: mistake
# class: mismatch|nonfinite|nondeterministic
# what: leaves the answer of an empty row as memory was
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(start_ptr, column_ptr, value_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    begin = tl.load(start_ptr + row).to(tl.int32)
    end = tl.load(start_ptr + row + 1).to(tl.int32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(begin, end, BLOCK):
        at = first + tl.arange(0, BLOCK)
        column = tl.load(column_ptr + at, mask=at < end, other=0)
        value = tl.load(value_ptr + at, mask=at < end, other=0.0)
        total += value * tl.load(x_ptr + column, mask=at < end, other=0.0)
    if end > begin:
        tl.store(y_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, start, column, value, x):
        rows = start.numel() - 1
        y = torch.empty((rows,), device=x.device, dtype=x.dtype)
        row_kernel[(rows,)](start.contiguous(), column.contiguous(), value.contiguous(), x.contiguous(), y, BLOCK=16)
        return y
