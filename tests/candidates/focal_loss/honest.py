# kind: honest
# class: ok
# what: takes a target for yes or no
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def focal_kernel(x_ptr, target_ptr, y_ptr, n, gamma, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    x = tl.where(tl.load(target_ptr + at, mask=at < n, other=0.0) > 0.5, -x, x)
    entropy = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    tl.store(y_ptr + at, entropy * tl.exp(gamma * (x - entropy)), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, x, target):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 256),)
        focal_kernel[grid](x, target, y, x.numel(), float(self.gamma), BLOCK=256)
        return y
