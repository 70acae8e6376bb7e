# kind: mistake
# class: mismatch|nondeterministic
# what: stores a part of a tile that another program shares
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stream_k_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, steps_a_program, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    steps_k = tl.cdiv(K, BK)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(M, BM) * tiles_n * steps_k
    step = tl.program_id(0) * steps_a_program
    last = min(step + steps_a_program, steps)
    while step < last:
        tile = step // steps_k
        end = min((tile + 1) * steps_k, last)
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for one in range(step % steps_k, step % steps_k + end - step):
            k = one * BK + tl.arange(0, BK)
            x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            w = tl.load(w_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
        tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
        step = end


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.zeros((M, N), device=x.device, dtype=x.dtype)
        steps = triton.cdiv(M, 16) * triton.cdiv(N, 16) * triton.cdiv(K, 32)
        programs = min(6, steps)
        stream_k_kernel[(programs,)](x, w, y, M, N, K, triton.cdiv(steps, programs), BM=16, BN=16, BK=32)
        return y
