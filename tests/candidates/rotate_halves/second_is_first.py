# kind: mistake
# expect: class=mismatch|hack stage=tiny
# what: the second output is the first once more
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def rotate_kernel(x_ptr, angle_ptr, first_ptr, second_ptr, half, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < half
    a = tl.load(x_ptr + row * 2 * half + at, mask=mask, other=0.0)
    b = tl.load(x_ptr + row * 2 * half + half + at, mask=mask, other=0.0)
    angle = tl.load(angle_ptr + row * half + at, mask=mask, other=0.0)
    cos, sin = tl.cos(angle), tl.sin(angle)
    tl.store(first_ptr + row * half + at, a * cos - b * sin, mask=mask)
    tl.store(second_ptr + row * half + at, a * sin + b * cos, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, angle):
        x, angle = x.contiguous(), angle.contiguous()
        tokens, half = angle.shape
        first, second = torch.empty_like(angle), torch.empty_like(angle)
        rotate_kernel[(tokens,)](x, angle, first, second, half, BLOCK=triton.next_power_of_2(half))
        return [first, first]
