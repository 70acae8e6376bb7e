# kind: honest
# class: ok
# what: statistics by one kernel, and another that applies them to blocks of all planes
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, size, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + plane * size + at, mask=at < size, other=0.0)
    mean = tl.sum(x, axis=0) / size
    centred = tl.where(at < size, x - mean, 0.0)
    tl.store(mean_ptr + plane, mean)
    tl.store(rstd_ptr + plane, 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=0) / size + eps))


@triton.jit
def apply(x_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, y_ptr, C, size, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    plane = at // size
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + plane, mask=mask, other=0.0)
    rstd = tl.load(rstd_ptr + plane, mask=mask, other=0.0)
    w = tl.load(w_ptr + plane % C, mask=mask, other=0.0)
    b = tl.load(b_ptr + plane % C, mask=mask, other=0.0)
    tl.store(y_ptr + at, (x - mean) * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        mean, rstd, y = x.new_empty(n * c), x.new_empty(n * c), torch.empty_like(x)
        statistics[(n * c,)](x, mean, rstd, h * w, self.norm.eps, BLOCK=triton.next_power_of_2(h * w))
        weight, bias = self.norm.weight, self.norm.bias
        apply[(triton.cdiv(x.numel(), 256),)](x, mean, rstd, weight, bias, y, c, h * w, x.numel(), BLOCK=256)
        return y
