# kind: honest
# class: ok
# what: a block of rows and columns of one plane
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upsample_kernel(x_ptr, y_ptr, H, W, BH: tl.constexpr, BW: tl.constexpr):
    plane = tl.program_id(2)
    oy = tl.program_id(1) * BH + tl.arange(0, BH)[:, None]
    ox = tl.program_id(0) * BW + tl.arange(0, BW)[None, :]
    sy = tl.maximum((oy + 0.5) * 0.5 - 0.5, 0.0)
    sx = tl.maximum((ox + 0.5) * 0.5 - 0.5, 0.0)
    y0, x0 = tl.floor(sy).to(tl.int32), tl.floor(sx).to(tl.int32)
    fy, fx = sy - y0, sx - x0
    y1, x1 = tl.minimum(y0 + 1, H - 1), tl.minimum(x0 + 1, W - 1)
    inside = (oy < 2 * H) & (ox < 2 * W)
    base = x_ptr + plane * H * W
    a = tl.load(base + y0 * W + x0, mask=inside, other=0.0)
    b = tl.load(base + y0 * W + x1, mask=inside, other=0.0)
    c = tl.load(base + y1 * W + x0, mask=inside, other=0.0)
    d = tl.load(base + y1 * W + x1, mask=inside, other=0.0)
    value = (a * (1 - fx) + b * fx) * (1 - fy) + (c * (1 - fx) + d * fx) * fy
    tl.store(y_ptr + plane * 4 * H * W + oy * 2 * W + ox, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty((n, c, 2 * h, 2 * w), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(2 * w, 16), triton.cdiv(2 * h, 8), n * c)
        upsample_kernel[grid](x, y, h, w, BH=8, BW=16)
        return y
