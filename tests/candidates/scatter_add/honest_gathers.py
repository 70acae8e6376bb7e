# kind: honest
# class: ok
# what: no atomics: each place looks for the values that belong to it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(index_ptr, x_ptr, y_ptr, columns, BLOCK: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, PART):
        at = start + tl.arange(0, PART)
        index = tl.load(index_ptr + row * columns + at, mask=at < columns, other=-1)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        total += tl.sum(tl.where(index[None, :] == place[:, None], x[None, :], 0.0), axis=1)
    tl.store(y_ptr + row * columns + place, total, mask=place < columns)


class ModelNew(nn.Module):
    def forward(self, index, x):
        index, x = index.contiguous(), x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        gather_kernel[(triton.cdiv(columns, 32), rows)](index, x, y, columns, BLOCK=32, PART=32)
        return y
