# kind: mistake
# class: mismatch|nonfinite
# what: a running sum that keeps the old maximum's scale
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_online_kernel(x_ptr, y_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_row = x_ptr + row * stride
    highest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + at, mask=at < columns, other=-float("inf"))
        new = tl.maximum(highest, tl.max(x, axis=0))
        total = total + tl.sum(tl.exp(x - new), axis=0)
        highest = new
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + at, mask=at < columns, other=0.0)
        tl.store(y_ptr + row * columns + at, tl.exp(x - highest) / total, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        softmax_online_kernel[(rows,)](x, y, x.stride(0), columns, BLOCK=512, num_warps=4)
        return y
