# kind: honest
# class: ok
# what: a helper reads a corner if it is within the image
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def corner(base, y, x, H, W, weight, mask):
    inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & mask
    return tl.load(base + y * W + x, mask=inside, other=0.0) * weight


@triton.jit
def sample_kernel(x_ptr, field_ptr, y_ptr, C, H, W, places, BLOCK: tl.constexpr):
    n, c = tl.program_id(1) // C, tl.program_id(1) % C
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < places
    fx = tl.load(field_ptr + (n * places + at) * 2, mask=mask, other=0.0)
    fy = tl.load(field_ptr + (n * places + at) * 2 + 1, mask=mask, other=0.0)
    fx = tl.minimum(tl.maximum(fx, -3.0), 3.0)
    fy = tl.minimum(tl.maximum(fy, -3.0), 3.0)
    sx = ((fx + 1) * W - 1) * 0.5
    sy = ((fy + 1) * H - 1) * 0.5
    x0, y0 = tl.floor(sx), tl.floor(sy)
    wx, wy = sx - x0, sy - y0
    xi, yi = x0.to(tl.int32), y0.to(tl.int32)
    base = x_ptr + (n * C + c) * H * W
    value = corner(base, yi, xi, H, W, (1 - wx) * (1 - wy), mask)
    value += corner(base, yi, xi + 1, H, W, wx * (1 - wy), mask)
    value += corner(base, yi + 1, xi, H, W, (1 - wx) * wy, mask)
    value += corner(base, yi + 1, xi + 1, H, W, wx * wy, mask)
    tl.store(y_ptr + (n * C + c) * places + at, value, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, field):
        x, field = x.contiguous(), field.contiguous()
        n, c, h, w = x.shape
        _, rows, columns, _ = field.shape
        y = torch.empty((n, c, rows, columns), device=x.device, dtype=x.dtype)
        sample_kernel[(triton.cdiv(rows * columns, 32), n * c)](x, field, y, c, h, w, rows * columns, BLOCK=32)
        return y
