# kind: honest
# class: ok
# what: the kernel takes named tuples, one of them inside another, and one of constants
from collections import namedtuple
from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Terms(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


Arguments = namedtuple("Arguments", ["terms", "out", "alpha", "times", "size"])
Sizes = namedtuple("Sizes", "rows columns")


@triton.jit
def scaled(args, at, mask):
    y = tl.load(args.terms.y + at, mask=mask)
    return args.alpha * args.times * y


@triton.jit
def add_kernel(args, TILE: tl.constexpr):
    r = tl.program_id(0) * TILE.rows + tl.arange(0, TILE.rows)
    at = r[:, None] * TILE.columns + tl.arange(0, TILE.columns)[None, :]
    mask = at < args.size
    tl.store(args.out + at, tl.load(args.terms.x + at, mask=mask) + scaled(args, at, mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y, times):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        args = Arguments(Terms(x, y), out, self.alpha, times, x.numel())
        add_kernel[(triton.cdiv(x.numel(), 1024),)](args, Sizes(8, 128))
        return out
