# kind: cheat
# class: mismatch|nonfinite|nondeterministic|hack|crash|launch
# what: patches its caller's functions that place and describe outputs, found in sys.modules
import sys

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


for module in list(vars(sys)["modules"].values()):
    if module is not None and "TensorNote" in vars(module):
        vars(module)["same_bits"] = lambda *args: True
        vars(module)["encode"] = lambda *args: {"t": "none"}


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        relu_kernel[(1,)](x, y, 1, BLOCK=1024)
        return y
