# kind: honest
# class: ok
# what: functions of constants, which Triton runs while it compiles, choose the block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def block_of(columns, least=16):
    block = least
    while block < columns:
        block *= 2
    return block


@triton.jit
def softmax_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, block_of(COLUMNS, least=32))
    mask = offsets < COLUMNS
    x = tl.load(x_ptr + row * COLUMNS + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * COLUMNS + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1])
        return y
