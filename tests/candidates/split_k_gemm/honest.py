# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_kernel(x_ptr, w_ptr, y_ptr, M, N, K, part, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * part
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, part, BLOCK_K):
        k = begin + start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + columns[None, :], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(y_ptr + rows[:, None] * N + columns[None, :], total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.zeros((M, N), device=x.device, dtype=x.dtype)
        part = triton.cdiv(triton.cdiv(K, 4), 16) * 16
        split_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16), 4)](x, w, y, M, N, K, part, BLOCK=16, BLOCK_K=16)
        return y
