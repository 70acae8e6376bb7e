# kind: honest
# class: ok
# what: product and length in one loop, scaled at its end
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, v_ptr, g_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    square = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        v = tl.load(v_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, v, acc, input_precision="ieee")
        square += tl.sum(v * v, axis=0)
    g = tl.load(g_ptr + n, mask=n < N, other=0.0)
    scale = g / tl.sqrt(tl.where(n < N, square, 1.0))
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc * scale[None, :], mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.g = nn.Parameter(torch.rand(rows, 1) + 0.5)
        self.v = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.v.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        linear_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, self.v, self.g, y, M, N, K, BM=16, BN=16, BK=16)
        return y
