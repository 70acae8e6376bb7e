# kind: mistake
# class: launch|mismatch|nonfinite
# what: the right border is the next row's first column
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_kernel(x_ptr, w_ptr, y_ptr, channels, filters, height, width, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(2)
    row, column = pixels // width, pixels % width
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        channel, tap = k // 9, k % 9
        r = row[:, None] + tap[None, :] // 3 - 1
        c = column[:, None] + tap[None, :] % 3 - 1
        legal = (r >= 0) & (r < height) & (k[None, :] < K)
        at = ((image * channels + channel[None, :]) * height + r) * width + c
        x = tl.load(x_ptr + at, mask=legal, other=0.0)
        w = tl.load(w_ptr + f[None, :] * K + k[:, None], mask=(f[None, :] < filters) & (k[:, None] < K), other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    at = (image * filters + f[None, :]) * height * width + pixels[:, None]
    tl.store(y_ptr + at, total, mask=(pixels[:, None] < height * width) & (f[None, :] < filters))


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3))

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        filters = self.weight.shape[0]
        y = torch.empty((batch, filters, height, width), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(height * width, 16), triton.cdiv(filters, 16), batch)
        conv_kernel[grid](
            x, self.weight, y, channels, filters, height, width, channels * 9, BLOCK=16, BLOCK_K=16
        )
        return y
