# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv1x1_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, c_in, c_out, plane,
    BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_I: tl.constexpr,
):
    image = tl.program_id(2)
    out = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    at = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    total = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for start in range(0, c_in, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)
        w = tl.load(w_ptr + out[:, None] * c_in + i[None, :], mask=(out[:, None] < c_out) & (i[None, :] < c_in), other=0.0)
        x = tl.load(x_ptr + (image * c_in + i[:, None]) * plane + at[None, :], mask=(i[:, None] < c_in) & (at[None, :] < plane), other=0.0)
        total += tl.dot(w, x)
    total += tl.load(b_ptr + out, mask=out < c_out, other=0.0)[:, None]
    mask = (out[:, None] < c_out) & (at[None, :] < plane)
    tl.store(y_ptr + (image * c_out + out[:, None]) * plane + at[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x):
        x = x.contiguous()
        batch, c_in, height, width = x.shape
        c_out = self.conv.weight.shape[0]
        plane = height * width
        y = torch.empty((batch, c_out, height, width), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(c_out, 16), triton.cdiv(plane, 64), batch)
        conv1x1_kernel[grid](
            x, self.conv.weight, self.conv.bias, y, c_in, c_out, plane, BLOCK_O=16, BLOCK_P=64, BLOCK_I=16
        )
        return y
