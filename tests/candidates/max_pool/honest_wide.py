# kind: honest
# class: ok
# what: a grid of rows and blocks, three shifted loads
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool3(x_ptr, y_ptr, rows, columns, places, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    p = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    middle = x_ptr + r * columns + 2 * p
    inside = (r < rows) & (p < places)
    low = -float("inf")
    left = tl.load(middle - 1, mask=inside & (p > 0), other=low)
    here = tl.load(middle, mask=inside, other=low)
    right = tl.load(middle + 1, mask=inside & (2 * p + 1 < columns), other=low)
    tl.store(y_ptr + r * places + p, tl.maximum(tl.maximum(left, here), right), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        places = (columns + 1) // 2
        y = torch.empty((rows, places), device=x.device, dtype=x.dtype)
        pool3[(triton.cdiv(rows, 8), triton.cdiv(places, 64))](x, y, rows, columns, places, BR=8, BC=64)
        return y
