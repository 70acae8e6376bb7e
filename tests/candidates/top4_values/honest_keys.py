# kind: honest
# class: ok
# what: four rounds over a block of rows, each takes the first of the largest away
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, y_ptr, rows, columns, COUNT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    x = tl.load(
        x_ptr + r[:, None] * columns + c[None, :],
        mask=(r[:, None] < rows) & (c[None, :] < columns),
        other=-float("inf"),
    )
    for i in tl.static_range(COUNT):
        best, place = tl.max(x, axis=1, return_indices=True)
        tl.store(y_ptr + r * COUNT + i, best, mask=r < rows)
        x = tl.where(c[None, :] == place[:, None], -float("inf"), x)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows, 4), device=x.device, dtype=x.dtype)
        top_kernel[(triton.cdiv(rows, 8),)](x, y, rows, columns, COUNT=4, BR=8, BC=triton.next_power_of_2(columns))
        return y
