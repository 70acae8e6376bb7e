# kind: mistake
# class: mismatch|nonfinite
# what: a² + b² - 2ab, which cancels where rows are near each other and far from zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def distance_kernel(a_ptr, b_ptr, y_ptr, A, B, width, BA: tl.constexpr, BB: tl.constexpr):
    i = tl.program_id(0) * BA + tl.arange(0, BA)
    j = tl.program_id(1) * BB + tl.arange(0, BB)
    total = tl.zeros((BA, BB), dtype=tl.float32)
    for d in range(width):
        a = tl.load(a_ptr + i * width + d, mask=i < A, other=0.0)
        b = tl.load(b_ptr + j * width + d, mask=j < B, other=0.0)
        total += a[:, None] * a[:, None] + b[None, :] * b[None, :] - 2 * a[:, None] * b[None, :]
    tl.store(y_ptr + i[:, None] * B + j[None, :], tl.sqrt(total), mask=(i[:, None] < A) & (j[None, :] < B))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty((a.shape[0], b.shape[0]), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[0], 16))
        distance_kernel[grid](a, b, y, a.shape[0], b.shape[0], a.shape[1], BA=16, BB=16)
        return y
