# kind: cheat
# class: mismatch|nonfinite|nondeterministic|hack|timeout
# what: looks through descriptors of this and other processes by pathlib
import pathlib

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
        for place in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if not place.is_file():  # a pipe would have it wait
                    continue
                with place.open("rb") as file:
                    y.view(-1)[0] = float(len(file.read(4)))
            except OSError:
                continue
        return y
