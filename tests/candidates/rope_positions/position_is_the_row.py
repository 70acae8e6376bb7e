# kind: mistake
# class: mismatch|nonfinite
# what: takes the row for the position
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, position_ptr, y_ptr, HALF: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, HALF)
    position = row
    position = tl.where(position < 0, position + 4096, position).to(tl.float32)
    angle = position * tl.exp(at.to(tl.float32) * (-9.210340371976184 / HALF))
    a = tl.load(x_ptr + row * 2 * HALF + at)
    b = tl.load(x_ptr + row * 2 * HALF + HALF + at)
    tl.store(y_ptr + row * 2 * HALF + at, a * tl.cos(angle) - b * tl.sin(angle))
    tl.store(y_ptr + row * 2 * HALF + HALF + at, a * tl.sin(angle) + b * tl.cos(angle))


class ModelNew(nn.Module):
    def forward(self, x, position):
        x = x.contiguous()
        y = torch.empty_like(x)
        rope_kernel[(x.shape[0],)](x, position, y, HALF=x.shape[1] // 2)
        return y
