# kind: integers
# level: 1
# why: only the low half of each word counts, and the draw sets no other
import torch
import torch.nn as nn


def spread(v):
    v = v & 0xFFFF
    v = (v | (v << 8)) & 0x00FF00FF
    v = (v | (v << 4)) & 0x0F0F0F0F
    v = (v | (v << 2)) & 0x33333333
    return (v | (v << 1)) & 0x55555555


class Model(nn.Module):
    def forward(self, x, y):
        return spread(x.long()) | (spread(y.long()) << 1)


N = 777


def get_inputs():
    return [torch.randint(0, 4000, (N,)).int(), torch.randint(0, 4000, (N,)).int()]


def get_init_inputs():
    return []
