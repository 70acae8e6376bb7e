# kind: honest
# class: ok
# what: columns into a buffer, then a product
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def columns_kernel(x_ptr, c_ptr, C, H, W, BK: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    k = tl.program_id(1) * BK + tl.arange(0, BK)[:, None]
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)[None, :]
    c, tap = k // 9, k % 9
    y, x = at // W + tap // 3 - 1, at % W + tap % 3 - 1
    mask = (k < C * 9) & (at < H * W)
    inside = mask & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    value = tl.load(x_ptr + ((n * C + c) * H + y) * W + x, mask=inside, other=0.0)
    tl.store(c_ptr + (n * C * 9 + k) * H * W + at, value, mask=mask)


@triton.jit
def product_kernel(w_ptr, c_ptr, y_ptr, F, K, P, BF: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(2)
    f = tl.program_id(0) * BF + tl.arange(0, BF)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    acc = tl.zeros((BF, BP), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(w_ptr + f[:, None] * K + k[None, :], mask=(f[:, None] < F) & (k[None, :] < K), other=0.0)
        c = tl.load(c_ptr + (n * K + k[:, None]) * P + p[None, :], mask=(k[:, None] < K) & (p[None, :] < P), other=0.0)
        acc += tl.dot(w, c, input_precision="ieee")
    tl.store(y_ptr + (n * F + f[:, None]) * P + p[None, :], acc, mask=(f[:, None] < F) & (p[None, :] < P))


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3))

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        filters, inner = self.weight.shape[0], c * 9
        columns = torch.empty((n, inner, h * w), device=x.device, dtype=x.dtype)
        y = torch.empty((n, filters, h, w), device=x.device, dtype=x.dtype)
        columns_kernel[(n, triton.cdiv(inner, 16), triton.cdiv(h * w, 128))](x, columns, c, h, w, BK=16, BLOCK=128)
        grid = (triton.cdiv(filters, 16), triton.cdiv(h * w, 32), n)
        product_kernel[grid](self.weight, columns, y, filters, inner, h * w, BF=16, BP=32, BK=16)
        return y
