# kind: honest
# class: ok
# what: each tile does as many products as it has experts, masked by row
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def grouped_kernel(
    x_ptr, w_ptr, e_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    first_row = tl.program_id(0) * BM
    last_row = min(first_row + BM, M) - 1
    expert = tl.load(e_ptr + m, mask=m < M, other=-1)
    first = tl.load(e_ptr + first_row).to(tl.int32)
    last = tl.load(e_ptr + last_row).to(tl.int32)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for e in range(first, last + 1):
        mine = (expert == e)[:, None]
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=mine & (k[None, :] < K), other=0.0)
            w = tl.load(
                w_ptr + (e * K + k[:, None]) * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
            )
            acc = tl.dot(x, w, acc, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, weight, expert):
        x, weight, expert = x.contiguous(), weight.contiguous(), expert.contiguous()
        (M, K), N = x.shape, weight.shape[2]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grouped_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, weight, expert, y, M, N, K, BM=16, BN=16, BK=32)
        return y
