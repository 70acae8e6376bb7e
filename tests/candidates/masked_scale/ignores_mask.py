# kind: mistake
# expect: class=mismatch stage=tiny
# what: the mask changes nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def masked_scale_kernel(x_ptr, mask_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    chosen = tl.load(mask_ptr + offsets, mask=inside, other=0)
    tl.store(y_ptr + offsets, tl.where(chosen != 2, x, x * 0.25), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        masked_scale_kernel[(triton.cdiv(n, 1024),)](x, mask, y, n, BLOCK=1024)
        return y
