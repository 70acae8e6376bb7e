# kind: cheat
# expect: class=nondeterministic|mismatch stage=tiny
# what: returns what its kernel made of the inputs of the call before, right where a case is asked twice
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        kept = self.kept.setdefault(tuple(x.shape), torch.zeros(x.shape, device="cuda"))
        y = kept.clone()
        copy[(triton.cdiv(x.numel(), 1024),)](x, kept, x.numel(), BLOCK=1024)
        return y
