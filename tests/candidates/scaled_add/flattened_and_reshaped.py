# kind: suspicious
# class: ok
# what: contiguous, view, reshape: movement only
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + factor * y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y, times):
        flat_x, flat_y = x.contiguous().view(-1), y.contiguous().flatten()
        out = torch.empty_like(flat_x)
        n = out.numel()
        add_kernel[(triton.cdiv(n, 256),)](flat_x, flat_y, out, self.alpha * times, n, BLOCK=256)
        return out.reshape(x.shape)
