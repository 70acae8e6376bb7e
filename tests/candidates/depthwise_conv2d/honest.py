# kind: honest
# class: ok
# what: strides of all dimensions, blocks of places of one plane
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise(
    x_ptr, w_ptr, b_ptr, y_ptr, C, H, W, OH, OW, sn, sc, sh, sw,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr,
):
    n, c = tl.program_id(0) // C, tl.program_id(0) % C
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oh, ow = at // OW, at % OW
    acc = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + c)
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            h = oh * STRIDE + i - SIZE // 2
            w = ow * STRIDE + j - SIZE // 2
            mask = (at < OH * OW) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + n * sn + c * sc + h * sh + w * sw, mask=mask, other=0.0)
            acc += x * tl.load(w_ptr + (c * SIZE + i) * SIZE + j)
    tl.store(y_ptr + tl.program_id(0) * OH * OW + at, acc, mask=at < OH * OW)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1, groups=channels)

    def forward(self, x):
        n, c, h, w = x.shape
        oh, ow = (h + 1) // 2, (w + 1) // 2
        y = torch.empty((n, c, oh, ow), device=x.device, dtype=x.dtype)
        depthwise[(n * c, triton.cdiv(oh * ow, 64))](
            x, self.conv.weight, self.conv.bias, y, c, h, w, oh, ow, *x.stride(), SIZE=3, STRIDE=2, BLOCK=64
        )
        return y
