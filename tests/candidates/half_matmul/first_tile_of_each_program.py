# kind: mistake
# class: mismatch|nonfinite|nondeterministic
# what: a persistent loop whose step is one too many: tiles are left out
import torch
import torch.nn as nn
import triton
import triton.language as tl

PROGRAMS = 8


@triton.jit
def descriptor_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, COUNT: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in range(tl.program_id(0), tiles, COUNT + 1):
        row = tile // tiles_n * BM
        column = tile % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = a_desc.load([row, k])
            b = b_desc.load([k, column])
            acc = tl.dot(a, b, acc)
        c_desc.store([row, column], acc.to(tl.float16))


def _allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    def forward(self, a, b):
        triton.set_allocator(_allocate)
        (M, K), N = a.shape, b.shape[1]
        # The row of a descriptor is a multiple of 16 bytes.
        k8, n8 = -(-K // 8) * 8, -(-N // 8) * 8
        if k8 != K or n8 != N:
            a_full = torch.zeros((M, k8), device=a.device, dtype=a.dtype)
            a_full[:, :K].copy_(a)
            b_full = torch.zeros((k8, n8), device=b.device, dtype=b.dtype)
            b_full[:K, :N].copy_(b)
            a, b = a_full, b_full
        c = torch.empty((M, n8), device=a.device, dtype=a.dtype)
        descriptor_kernel[(PROGRAMS,)](
            a.contiguous(), b.contiguous(), c, M, n8, k8, BM=16, BN=16, BK=32, COUNT=PROGRAMS
        )
        return c[:, :N].contiguous() if n8 != N else c
