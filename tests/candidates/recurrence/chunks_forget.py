# kind: mistake
# class: mismatch
# what: each chunk begins without the state of the one before
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def scan_kernel(x_ptr, decay_ptr, y_ptr, length, channels, BT: tl.constexpr, BC: tl.constexpr):
    batch = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    decay = tl.load(decay_ptr + c, mask=c < channels, other=0.0)
    state = tl.zeros((BC,), dtype=tl.float32)
    last = (tl.arange(0, BT) == BT - 1)[:, None]
    for start in range(0, length, BT):
        t = start + tl.arange(0, BT)
        at = (batch * length + t[:, None]) * channels + c[None, :]
        mask = (t[:, None] < length) & (c[None, :] < channels)
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        a, b = tl.associative_scan((tl.broadcast_to(decay[None, :], (BT, BC)), x), 0, combine)
        y = b
        tl.store(y_ptr + at, y, mask=mask)
        state = tl.sum(tl.where(last, y, 0.0), axis=0)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        x = x.contiguous()
        batch, length, channels = x.shape
        y = torch.empty_like(x)
        scan_kernel[(batch, triton.cdiv(channels, 16))](x, self.decay, y, length, channels, BT=16, BC=16)
        return y
