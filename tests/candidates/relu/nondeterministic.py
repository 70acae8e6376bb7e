# expect: class=nondeterministic stage=tiny|full
# why: the same input gives another answer each time, each within the tolerance
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x_ptr, y_ptr, n, calls, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    # Within the tolerance for each call, and yet never the same answer twice.
    drift = 1.0 + 1.0e-6 * calls
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * drift, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, self.calls % 7, BLOCK=1024)
        return y
