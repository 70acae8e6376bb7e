# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def persistent_kernel(x_ptr, w_ptr, y_ptr, M, N, K, programs, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    across = tl.cdiv(N, BLOCK)
    tiles = tl.cdiv(M, BLOCK) * across
    for tile in range(tl.program_id(0), tiles, programs):
        rows = tile // across * BLOCK + tl.arange(0, BLOCK)
        columns = tile % across * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
            w = tl.load(
                w_ptr + k[:, None] * N + columns[None, :], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0
            )
            total += tl.dot(x, w)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(y_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        persistent_kernel[(4,)](x, w, y, M, N, K, 4, BLOCK=16, BLOCK_K=16)
        return y
