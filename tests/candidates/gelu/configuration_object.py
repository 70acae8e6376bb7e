# kind: suspicious
# class: ok
# what: reads its own configuration by getattr, with defaults
from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y, mask=mask)


@dataclass(frozen=True)
class Config:
    block: int = 512
    num_warps: int = 4


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("block", "num_warps", "num_stages"):
            setattr(self, name, getattr(Config(), name, 2))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
        gelu_kernel[grid](x, y, n, BLOCK=getattr(self, "block"), num_warps=self.num_warps, num_stages=self.num_stages)
        return y
