# kind: mistake
# class: mismatch
# what: the filter runs backwards
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_tile(x_ptr, w_ptr, b_ptr, y_ptr, C, T, TAPS: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr):
    n = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    t = tl.program_id(2) * BT + tl.arange(0, BT)
    acc = tl.zeros((BC, BT), dtype=tl.float32)
    acc += tl.load(b_ptr + c, mask=c < C, other=0.0)[:, None]
    for k in tl.static_range(TAPS):
        at = t - (TAPS - 1) + k
        mask = (c[:, None] < C) & (at[None, :] >= 0) & (at[None, :] < T)
        x = tl.load(x_ptr + (n * C + c[:, None]) * T + at[None, :], mask=mask, other=0.0)
        acc += x * tl.load(w_ptr + c * TAPS + TAPS - 1 - k, mask=c < C, other=0.0)[:, None]
    acc = acc * tl.sigmoid(acc)
    tl.store(y_ptr + (n * C + c[:, None]) * T + t[None, :], acc, mask=(c[:, None] < C) & (t[None, :] < T))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 4))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        n, c, t = x.shape
        y = torch.empty_like(x)
        conv_tile[(n, triton.cdiv(c, 4), triton.cdiv(t, 32))](x, self.weight, self.bias, y, c, t, TAPS=4, BC=4, BT=32)
        return y
