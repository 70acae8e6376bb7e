# kind: suspicious
# class: ok
# what: measures how long its first launch took to compile, and keeps the figure
import time

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
        self.first_launch_s = None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        start = time.perf_counter()
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        if self.first_launch_s is None:
            self.first_launch_s = time.perf_counter() - start
        return y
