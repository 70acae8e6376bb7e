# kind: robustness
# class: crash
# what: raises an exception whose class, text and cause raise when they are looked at
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class Meta(type):
    @property
    def __name__(cls):
        raise SystemExit(3)

    @property
    def __module__(cls):
        raise KeyboardInterrupt


class Broken(Exception, metaclass=Meta):
    def __str__(self):
        raise SystemExit(4)

    @property
    def __cause__(self):
        raise KeyboardInterrupt

    @property
    def __traceback__(self):
        raise MemoryError


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        raise Broken
