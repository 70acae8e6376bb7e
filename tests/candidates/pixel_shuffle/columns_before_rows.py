# kind: mistake
# class: mismatch
# what: the order of the four channels is the other one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shuffle_kernel(x_ptr, y_ptr, C, H, W, R: tl.constexpr, BLOCK: tl.constexpr):
    n, c = tl.program_id(0), tl.program_id(1)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = at < H * W * R * R
    oy, ox = at // (W * R), at % (W * R)
    channel = c * R * R + ox % R * R + oy % R
    value = tl.load(x_ptr + ((n * C * R * R + channel) * H + oy // R) * W + ox // R, mask=mask)
    tl.store(y_ptr + (n * C + c) * H * W * R * R + at, value, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, channels, h, w = x.shape
        c = channels // 4
        y = torch.empty((n, c, 2 * h, 2 * w), device=x.device, dtype=x.dtype)
        shuffle_kernel[(n, c, triton.cdiv(4 * h * w, 128))](x, y, c, h, w, R=2, BLOCK=128)
        return y
