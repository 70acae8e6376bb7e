# kind: suspicious
# class: ok
# what: two copies through scratch that look like a detour, none of which is a view
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        scratch, y = torch.empty_like(x), torch.empty_like(x)
        grid = (triton.cdiv(n, 1024),)
        copy_kernel[grid](x, scratch, n, BLOCK=1024)
        copy_kernel[grid](scratch, y, n, BLOCK=1024)
        return y
