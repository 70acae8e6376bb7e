# kind: mistake
# class: mismatch
# what: x sigmoid(1.702 x), a coarser form
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_into(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < total, other=0.0)
    tl.store(out_ptr + at, x * tl.sigmoid(1.702 * x), mask=at < total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._buffers_by_shape = {}

    def _out(self, x):
        key = (tuple(x.shape), x.dtype)
        if key not in self._buffers_by_shape:
            self._buffers_by_shape[key] = torch.empty_like(x)
        return self._buffers_by_shape[key]

    def forward(self, x):
        x = x.contiguous()
        out = self._out(x)
        gelu_into[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
