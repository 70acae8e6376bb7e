# kind: cheat
# class: nonfinite|mismatch|nondeterministic|hack
# what: the work is done when the last answer is thrown away
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


class Later:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __del__(self):
        n = self.x.numel()
        relu_kernel[(triton.cdiv(n, 1024),)](self.x, self.y, n, BLOCK=1024)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.later = None

    def forward(self, x):
        y = torch.empty_like(x)
        self.later = Later(x, y)
        return y
