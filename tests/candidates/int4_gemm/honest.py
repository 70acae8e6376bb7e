# kind: honest
# class: ok
# what: unpacks, subtracts zeros and scales in the loop over the inner dimension
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def int4_kernel(
    x_ptr, p_ptr, s_ptr, z_ptr, y_ptr, M, N, K, group_size,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        inside = (k[:, None] < K) & (n[None, :] < N)
        word = tl.load(p_ptr + (k[:, None] // 8) * N + n[None, :], mask=inside, other=0)
        w = ((word >> ((k[:, None] % 8) * 4)) & 0xF).to(tl.float32)
        group = k[:, None] // group_size
        scale = tl.load(s_ptr + group * N + n[None, :], mask=inside, other=0.0)
        zero = tl.load(z_ptr + group * N + n[None, :], mask=inside, other=0.0)
        acc += tl.dot(x, (w - zero) * scale, input_precision="ieee")
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, packed, scale, zero):
        x, packed, scale, zero = (t.contiguous() for t in (x, packed, scale, zero))
        (M, K), N = x.shape, packed.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        int4_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
            x, packed, scale, zero, y, M, N, K, 16, BM=16, BN=16, BK=32
        )
        return y
