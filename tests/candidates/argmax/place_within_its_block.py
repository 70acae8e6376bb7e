# kind: mistake
# class: mismatch
# what: the place within a block, without the block's first
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def first_pass(x_ptr, value_ptr, place_ptr, rows, columns, blocks, BR: tl.constexpr, BLOCK: tl.constexpr):
    r, block = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1)
    c = block * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask, other=-float("inf"))
    value, place = tl.max(x, axis=1, return_indices=True)
    tl.store(value_ptr + r * blocks + block, value, mask=r < rows)
    tl.store(place_ptr + r * blocks + block, place, mask=r < rows)


@triton.jit
def second_pass(value_ptr, place_ptr, y_ptr, rows, blocks, BR: tl.constexpr, BLOCK: tl.constexpr):
    r, b = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (b[None, :] < blocks)
    value = tl.load(value_ptr + r[:, None] * blocks + b[None, :], mask=mask, other=-float("inf"))
    best = tl.argmax(value, axis=1)
    tl.store(y_ptr + r, tl.load(place_ptr + r * blocks + best, mask=r < rows), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 256)
        value = torch.empty((rows, blocks), device=x.device, dtype=x.dtype)
        place = torch.empty((rows, blocks), device=x.device, dtype=torch.int64)
        y = torch.empty((rows,), device=x.device, dtype=torch.int64)
        first_pass[(triton.cdiv(rows, 8), blocks)](x, value, place, rows, columns, blocks, BR=8, BLOCK=256)
        second_pass[(triton.cdiv(rows, 16),)](
            value, place, y, rows, blocks, BR=16, BLOCK=triton.next_power_of_2(blocks)
        )
        return y
