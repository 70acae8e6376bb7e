# kind: honest
# expect: class=ok
# needs: gpu
# what: the whole of it in one kernel, on tensor cores
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, factor, slope,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):
    # Neighbouring programs share rows of x and of w: both stay in the L2 cache.
    program = tl.program_id(0)
    blocks_n = tl.cdiv(N, BLOCK_N)
    blocks_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP * blocks_n
    first = (program // in_group) * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    rows = (first + (program % in_group) % size) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = ((program % in_group) // size) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + columns[None, :] * K + k[:, None], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, w, total)
    total = (total + tl.load(b_ptr + columns, mask=columns < N, other=0.0)[None, :]) * factor
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], tl.where(total > 0, total, total * slope), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, factor, slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.factor = factor
        self.slope = slope

    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        N = self.gemm.weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 128) * triton.cdiv(N, 128),)
        gemm_kernel[grid](
            x, self.gemm.weight, self.gemm.bias, y, M, N, K, self.factor, self.slope,
            BLOCK_M=128, BLOCK_N=128, BLOCK_K=32, GROUP=8, num_warps=8, num_stages=4,
        )
        return y
