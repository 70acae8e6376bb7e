# kind: cheat
# class: hack|mismatch|nonfinite|nondeterministic
# needs: gpu
# what: works on a side stream and makes synchronising a no-op by a dictionary
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


names = vars(torch.cuda)
names["synchronize"] = lambda device=None: None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        y = torch.empty_like(x)
        n = x.numel()
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(100_000_000)
            relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
