# kind: mistake
# class: mismatch
# what: the last step of a part reaches into the next one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(x_ptr, w_ptr, part_ptr, M, N, K, length, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * length, min((part + 1) * length, K), BK):
        k = start + tl.arange(0, BK)
        inner = k < K
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & inner[None, :], other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + n[None, :], mask=inner[:, None] & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    at = (part * M + m[:, None]) * N + n[None, :]
    tl.store(part_ptr + at, acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def sum_kernel(part_ptr, y_ptr, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(part_ptr + part * size + at, mask=at < size, other=0.0)
    tl.store(y_ptr + at, total, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        parts = torch.empty((3, M, N), device=x.device, dtype=torch.float32)
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]), 3)
        part_kernel[grid](x, w, parts, M, N, K, triton.cdiv(K, 3), BM=16, BN=32, BK=16)
        sum_kernel[(triton.cdiv(M * N, 256),)](parts, y, M * N, PARTS=3, BLOCK=256)
        return y
