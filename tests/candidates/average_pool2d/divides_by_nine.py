# kind: mistake
# class: mismatch
# what: divides by the size of the window at the border, too
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_kernel(x_ptr, y_ptr, H, W, OH, OW, SIZE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oy, ox = at // OW, at % OW
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            y = oy * STRIDE - PAD + i
            x = ox * STRIDE - PAD + j
            inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (at < OH * OW)
            total += tl.load(x_ptr + (plane * H + y) * W + x, mask=inside, other=0.0)
            count += inside.to(tl.int32)
    tl.store(y_ptr + plane * OH * OW + at, total / (SIZE * SIZE), mask=at < OH * OW)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        oh, ow = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        y = x.new_empty((n, c, oh, ow))
        pool_kernel[(n * c, triton.cdiv(oh * ow, 64))](x, y, h, w, oh, ow, SIZE=3, STRIDE=2, PAD=1, BLOCK=64)
        return y
