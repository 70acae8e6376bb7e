# kind: honest
# class: ok
# what: Welford's merge of blocks in a loop
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, C, size, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    channel = plane % C
    mean, m2, seen = 0.0, 0.0, 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < size
        x = tl.load(x_ptr + plane * size + at, mask=mask, other=0.0)
        count = tl.sum(mask.to(tl.float32), axis=0)
        mean_b = tl.sum(x, axis=0) / count
        centred = tl.where(mask, x - mean_b, 0.0)
        delta = mean_b - mean
        total = seen + count
        mean += delta * count / total
        m2 += tl.sum(centred * centred, axis=0) + delta * delta * seen * count / total
        seen = total
    scale = tl.rsqrt(m2 / size + eps) * tl.load(w_ptr + channel)
    shift = tl.load(b_ptr + channel) - mean * scale
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + plane * size + at, mask=at < size, other=0.0)
        tl.store(y_ptr + plane * size + at, x * scale + shift, mask=at < size)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty_like(x)
        norm_kernel[(n * c,)](x, self.norm.weight, self.norm.bias, y, c, h * w, self.norm.eps, BLOCK=32)
        return y
