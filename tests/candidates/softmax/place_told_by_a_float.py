# kind: suspicious
# class: ok
# what: a second kernel loads from where the first one says: without that one it reads far outside, and the process ends
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def place_kernel(p_ptr, n, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p_ptr + row, (row * columns).to(tl.float32), mask=row < n)


@triton.jit
def softmax_kernel(x_ptr, p_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    place = tl.load(p_ptr + tl.program_id(0)).to(tl.int32)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + place + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + tl.program_id(0).to(tl.int64) * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        places = torch.empty(rows, device=x.device)
        place_kernel[(triton.cdiv(rows, 64),)](places, rows, columns, BLOCK=64)
        softmax_kernel[(rows,)](x, places, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
