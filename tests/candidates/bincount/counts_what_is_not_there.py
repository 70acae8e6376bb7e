# kind: mistake
# expect: class=mismatch stage=tiny|full
# what: what lies behind the last element counts as zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count_kernel(x_ptr, counts_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x_ptr + at, mask=inside, other=0)
    tl.atomic_add(counts_ptr + value, tl.full((BLOCK,), 1, tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        counts = torch.zeros((64,), device=x.device, dtype=torch.int64)
        count_kernel[(triton.cdiv(x.numel(), 256),)](x, counts, x.numel(), BLOCK=256)
        return counts
