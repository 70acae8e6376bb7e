# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def largest_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    for place in range(4):
        best = tl.max(x, axis=0)
        first = tl.min(tl.where(x == best, at, BLOCK), axis=0)
        tl.store(y_ptr + row * 4 + place, best)
        x = tl.where(at == first, -float("inf"), x)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows, 4), device=x.device, dtype=x.dtype)
        largest_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
