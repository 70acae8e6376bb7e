# kind: suspicious
# class: ok
# what: views its mask as bytes, and launches once more for a part that is empty
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, mask_ptr, y_ptr, first, last, BLOCK: tl.constexpr):
    offsets = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < last
    x = tl.load(x_ptr + offsets, mask=inside)
    chosen = tl.load(mask_ptr + offsets, mask=inside) != 0
    tl.store(y_ptr + offsets, tl.where(chosen, x, x * 0.25), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        half = n // 2
        for first, last in ((0, half), (half, n), (n, n)):
            if last > first:
                scale_kernel[(triton.cdiv(last - first, 1024),)](
                    x, mask.view(torch.uint8), y, first, last, BLOCK=1024
                )
        return y
