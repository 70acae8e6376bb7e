# kind: mistake
# class: mismatch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normed_mean(x, weight, bias, out, CHANNELS: tl.constexpr, GROUPS: tl.constexpr, area, eps, BLOCK: tl.constexpr):
    sample = tl.program_id(0)
    group_channels: tl.constexpr = CHANNELS // GROUPS
    size = group_channels * area
    at = tl.arange(0, BLOCK)
    inside = at < size
    total = 0.0
    for group in tl.static_range(GROUPS):
        first = group * group_channels
        value = tl.load(x + (sample * CHANNELS + first) * area + at, mask=inside, other=0.0)
        centred = tl.where(inside, value - tl.sum(value) / size, 0.0)
        normed = centred * tl.rsqrt(tl.sum(centred * centred) / size + eps)
        channel = first + at // area
        scaled = normed * tl.load(weight + channel, mask=inside, other=0.0)
        total += tl.sum(tl.where(inside, scaled + tl.load(bias + channel, mask=inside, other=0.0), 0.0))
    tl.store(out + sample, total / CHANNELS)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        samples, channels, height, width = x.shape
        norm, area = self.group_norm, height * width
        block = triton.next_power_of_2(channels // norm.num_groups * area)
        out = torch.empty(samples, device=x.device, dtype=x.dtype)
        normed_mean[(samples,)](
            x, norm.weight, norm.bias, out, channels, norm.num_groups, area, norm.eps, BLOCK=block
        )
        return out
