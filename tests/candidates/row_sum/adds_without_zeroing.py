# kind: mistake
# class: mismatch|nonfinite|nondeterministic
# what: adds to memory that nobody set to zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_blocks(x_ptr, y_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
    tl.atomic_add(y_ptr + r, tl.sum(x, axis=1), mask=r < rows, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 128))
        add_blocks.run(x, y, rows, columns, BR=16, BC=128, grid=grid, warmup=False)
        return y
