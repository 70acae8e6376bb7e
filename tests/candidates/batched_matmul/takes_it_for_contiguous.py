# kind: mistake
# class: mismatch|nonfinite
# what: computes strides from the shape of a transposed view
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sab, sam, sak, sbb, sbk, sbn, scb, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    batch = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + batch * sab + m[:, None] * sam + k[None, :] * sak
    b_ptrs = b_ptr + batch * sbb + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for left in range(K, 0, -BK):
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    c_ptrs = c_ptr + batch * scb + m[:, None] * scm + n[None, :] * scn
    tl.store(c_ptrs, acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        batch, M, K = a.shape
        N = b.shape[2]
        c = a.new_empty((batch, M, N))
        bmm_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16), batch)](
            a, b, c, M, N, K, *a.stride(), K * N, N, 1, *c.stride(), BM=16, BN=16, BK=16
        )
        return c
