# kind: honest
# class: ok
# what: tensor descriptors made on the host
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tma_kernel(x_desc, w_desc, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(x_desc.load([m, k]), w_desc.load([k, n]), acc)
    rows, columns = m + tl.arange(0, BM), n + tl.arange(0, BN)
    at = rows[:, None] * N + columns[None, :]
    tl.store(y_ptr + at, acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


def padded(x):
    """Its rows a multiple of 16 bytes, as a descriptor wants them."""
    rows, columns = x.shape
    wide = triton.cdiv(columns, 8) * 8
    if wide == columns:
        return x.contiguous()
    y = torch.zeros((rows, wide), device=x.device, dtype=x.dtype)
    y[:, :columns] = x
    return y


class ModelNew(nn.Module):
    def forward(self, x, w):
        (M, K), N = x.shape, w.shape[1]
        x, w = padded(x), padded(w)
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        x_desc = TensorDescriptor.from_tensor(x, [16, 16])
        w_desc = TensorDescriptor.from_tensor(w, [16, 16])
        tma_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x_desc, w_desc, y, M, N, K, BM=16, BN=16, BK=16)
        return y
