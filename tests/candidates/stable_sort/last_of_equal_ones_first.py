# kind: mistake
# class: mismatch
# what: puts the last of equal values first
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, y_ptr, places_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("inf"))
    less = (x[None, :] < x[:, None]).to(tl.int32)
    before = ((x[None, :] == x[:, None]) & (at[None, :] > at[:, None]) & (at[None, :] < columns)).to(tl.int32)
    rank = tl.sum(less + before, axis=1)
    tl.store(y_ptr + row * columns + rank, x, mask=at < columns)
    tl.store(places_ptr + row * columns + rank, at.to(tl.int64), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        places = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        sort_kernel[(rows,)](x, y, places, columns, BLOCK=triton.next_power_of_2(columns))
        return y, places
