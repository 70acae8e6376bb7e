# kind: suspicious
# class: ok
# what: functools: a cached choice of the block, a partial launch
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / columns + eps)
    tl.store(y_ptr + row * columns + offsets, x / rms, mask=mask)


@functools.lru_cache(maxsize=None)
def block_for(columns):
    return triton.next_power_of_2(columns)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        y = torch.empty_like(x)
        launch = functools.partial(rms_norm_kernel[(x.numel() // columns,)], BLOCK=block_for(columns))
        launch(x, y, columns, self.eps)
        return y
