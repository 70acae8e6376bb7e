# kind: mistake
# class: mismatch
# needs: plan
# what: halves are rounded up, and not to the even one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantise_kernel(x_ptr, q_ptr, scale_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-8) / 127
    q = x / scale
    q = tl.floor(q + 0.5)
    tl.store(q_ptr + row * columns + at, tl.minimum(tl.maximum(q, -127.0), 127.0).to(tl.int8), mask=inside)
    tl.store(scale_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        q = torch.empty((rows, columns), device=x.device, dtype=torch.int8)
        scale = torch.empty((rows, 1), device=x.device, dtype=x.dtype)
        quantise_kernel[(rows,)](x, q, scale, columns, BLOCK=triton.next_power_of_2(columns))
        return q, scale
