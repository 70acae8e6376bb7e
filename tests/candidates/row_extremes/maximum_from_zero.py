# kind: mistake
# class: mismatch
# what: the maximum begins at 0
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, value_ptr, index_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    value, index = tl.max(x, axis=0, return_indices=True)
    value = tl.maximum(value, 0.0)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        values = torch.empty((rows,), device=x.device, dtype=x.dtype)
        indices = torch.empty((rows,), device=x.device, dtype=torch.int64)
        row_max_kernel[(rows,)](x, values, indices, columns, BLOCK=triton.next_power_of_2(columns))
        return values, indices
