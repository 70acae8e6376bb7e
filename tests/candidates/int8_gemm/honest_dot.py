# kind: honest
# class: ok
# what: tl.dot of bytes into int32
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def int8_dot(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        w = tl.load(w_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        acc = tl.dot(x, w, acc, out_dtype=tl.int32)
    s = tl.load(s_ptr + n, mask=n < N, other=0.0)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.float32) * s[None, :], mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w, scale):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=torch.float32)
        int8_dot[(triton.cdiv(M, 16), triton.cdiv(N, 32))](x, w, scale.contiguous(), y, M, N, K, BM=16, BN=32, BK=32)
        return y
