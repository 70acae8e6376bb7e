# kind: integers
# level: 1
# why: bits that the draw seldom sets all at once
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        bits = (x[..., None] >> torch.arange(32, device=x.device)) & 1
        return bits.sum((-1, -2))


R, C = 20, 45


def get_inputs():
    return [torch.randint(-(2**31), 2**31, (R, C)).int()]


def get_init_inputs():
    return []
