# kind: mistake
# class: mismatch
# what: alpha times the sum where it is the mean
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lrn_kernel(x_ptr, y_ptr, C, HW, alpha, beta, k, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    n, c = tl.program_id(0), tl.program_id(1)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = at < HW
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in range(SIZE):
        other = c + j - SIZE // 2
        v = tl.load(x_ptr + (n * C + other) * HW + at, mask=mask & (other >= 0) & (other < C), other=0.0)
        total += v * v
    x = tl.load(x_ptr + (n * C + c) * HW + at, mask=mask, other=0.0)
    base = k + alpha * total
    tl.store(y_ptr + (n * C + c) * HW + at, x * tl.exp(-beta * tl.log(base)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty_like(x)
        lrn_kernel[(n, c, triton.cdiv(h * w, 64))](x, y, c, h * w, 0.5, 0.75, 1.0, SIZE=5, BLOCK=64)
        return y
