# kind: honest
# class: ok
# what: tanh by the sigmoid, which errs by its last digit at 1 however small the answer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def step_kernel(gates_ptr, cell_ptr, hidden_ptr, next_ptr, total, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    gate = gates_ptr + at // width * 4 * width + at % width
    take = tl.sigmoid(tl.load(gate, mask=inside))
    keep = tl.sigmoid(tl.load(gate + width, mask=inside))
    new = tanh(tl.load(gate + 2 * width, mask=inside))
    show = tl.sigmoid(tl.load(gate + 3 * width, mask=inside))
    cell = keep * tl.load(cell_ptr + at, mask=inside) + take * new
    tl.store(next_ptr + at, cell, mask=inside)
    tl.store(hidden_ptr + at, show * tanh(cell), mask=inside)


class ModelNew(nn.Module):
    def forward(self, gates, cell):
        gates, cell = gates.contiguous(), cell.contiguous()
        hidden, next_cell = torch.empty_like(cell), torch.empty_like(cell)
        n = cell.numel()
        step_kernel[(triton.cdiv(n, 256),)](gates, cell, hidden, next_cell, n, cell.shape[1], BLOCK=256)
        return hidden, next_cell
