# kind: honest
# class: ok
# what: blocks of a row, a large negative number in place of infinity until the end
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_kernel(x_ptr, hidden_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    l = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        hidden = tl.load(hidden_ptr + row * columns + at, mask=at < columns, other=1)
        x = tl.load(x_ptr + row * columns + at, mask=(at < columns) & (hidden == 0), other=-float("inf"))
        new = tl.maximum(m, tl.max(x, axis=0))
        safe = tl.where(new == -float("inf"), 0.0, new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
        m = new
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        hidden = tl.load(hidden_ptr + row * columns + at, mask=at < columns, other=1)
        x = tl.load(x_ptr + row * columns + at, mask=(at < columns) & (hidden == 0), other=-float("inf"))
        tl.store(y_ptr + row * columns + at, tl.exp(x - m) / l, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x, hidden):
        x, hidden = x.contiguous(), hidden.contiguous()
        y = torch.empty_like(x)
        masked_kernel[(x.shape[0],)](x, hidden, y, x.shape[1], BLOCK=64)
        return y
