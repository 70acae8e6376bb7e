# kind: mistake
# class: mismatch|nonfinite
# what: tanh by a quotient of exponentials, which overflow
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + columns[None, :] * K + k[:, None], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(x, w)
    total += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
    tanh = (tl.exp(2.0 * inner) - 1.0) / (tl.exp(2.0 * inner) + 1.0)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(
        y_ptr + rows[:, None] * N + columns[None, :],
        (0.5 * total * (1.0 + tanh)).to(y_ptr.dtype.element_ty), mask=inside,
    )


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        N = self.linear.weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        gemm_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x, self.linear.weight, self.linear.bias, y, M, N, K, BLOCK=32, BLOCK_K=32
        )
        return y
