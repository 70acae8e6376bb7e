# kind: honest
# class: ok
# what: weights of its own names and shapes, packed by the constructor
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, packed_ptr, y_ptr, groups, per_group, channels, size, eps, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    total = per_group * size
    at = tl.arange(0, BLOCK)
    inside = at < total
    x = tl.load(x_ptr + program * total + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / total
    distance = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(distance * distance, axis=0) / total
    channel = (program % groups) * per_group + at // size
    weight = tl.load(packed_ptr + channel, mask=inside, other=0.0)
    bias = tl.load(packed_ptr + channels + channel, mask=inside, other=0.0)
    y = distance / tl.sqrt(variance + eps) * weight + bias
    tl.store(y_ptr + program * total + at, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.gamma = nn.Parameter(torch.ones(groups, channels // groups))
        self.beta = nn.Parameter(torch.zeros(groups, channels // groups))
        self.packed = torch.stack((self.gamma.detach().flatten(), self.beta.detach().flatten()))

    def forward(self, x):
        x = x.contiguous()
        batch, channels, size = x.shape
        groups = self.groups
        y = torch.empty_like(x)
        block = triton.next_power_of_2(channels // groups * size)
        norm_kernel[(batch * groups,)](
            x, self.packed, y, groups, channels // groups, channels, size, 1e-5, BLOCK=block
        )
        return y
