# kind: suspicious
# class: ok
# what: keeps its output buffer between calls, and writes all of it each time
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._buffers_by_shape = {}

    def forward(self, x):
        x = x.contiguous()
        key = (x.shape, x.dtype, x.device)
        y = self._buffers_by_shape.get(key)
        if y is None:
            y = self._buffers_by_shape[key] = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
