# kind: mistake
# class: mismatch
# what: output gate before the cell's candidate
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -t, t)


@triton.jit
def step_kernel(gates_ptr, cell_ptr, hidden_ptr, new_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = j < width
    gates = gates_ptr + row * 4 * width + j
    i = tl.sigmoid(tl.load(gates, mask=mask, other=0.0))
    f = tl.sigmoid(tl.load(gates + width, mask=mask, other=0.0))
    g = tanh(tl.load(gates + 3 * width, mask=mask, other=0.0))
    o = tl.sigmoid(tl.load(gates + 2 * width, mask=mask, other=0.0))
    cell = f * tl.load(cell_ptr + row * width + j, mask=mask, other=0.0) + i * g
    tl.store(new_ptr + row * width + j, cell, mask=mask)
    tl.store(hidden_ptr + row * width + j, o * tanh(cell), mask=mask)


class ModelNew(nn.Module):
    def forward(self, gates, cell):
        gates, cell = gates.contiguous(), cell.contiguous()
        rows, width = cell.shape
        hidden, new = torch.empty_like(cell), torch.empty_like(cell)
        step_kernel[(rows, triton.cdiv(width, 64))](gates, cell, hidden, new, width, BLOCK=64)
        return hidden, new
