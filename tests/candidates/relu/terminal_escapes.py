# kind: robustness
# class: launch
# what: its error and its output are commands to a terminal and markup for a page
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


print("\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\x00\x9b31m\u202e")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        raise ValueError('\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\x00\x9b31m\u202e\r\n{"level":"error"}')
