# kind: cheat
# class: crash|launch|mismatch|mutated_input
# what: sends a forged report on every descriptor that is open
import os

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


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        relu_kernel[(1,)](x, y, 1, BLOCK=1024)
        for fd in range(3, 64):
            try:
                os.write(fd, b'{"ev":"stage","stage":"full","outcome":"pass","class":null,"done":5,"of":5}')
            except OSError:
                continue
        return y
