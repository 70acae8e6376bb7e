# kind: mistake
# class: mismatch
# what: halves are rounded up, and not to the even one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def round_kernel(x_ptr, q_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.minimum(tl.maximum(tl.load(x_ptr + at, mask=inside, other=0.0), -127.0), 127.0)
    tl.store(q_ptr + at, tl.floor(x + 0.5).to(tl.int8), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        q = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        round_kernel[(triton.cdiv(x.numel(), 1024),)](x, q, x.numel(), BLOCK=1024)
        return q
