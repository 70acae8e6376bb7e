# kind: cheat
# expect: class=policy stage=compile
# what: the point between two values is half their sum: three points of linspace() add
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        means = torch.linspace(x[0, 0], x[0, 1], 3, device="cuda")[1:2]
        y = torch.empty_like(means)
        double[(triton.cdiv(len(means), 64),)](means, y, len(means), BLOCK=64)
        return y
