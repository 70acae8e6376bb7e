# kind: honest
# class: ok
# what: one kernel: blocks add by atomics to a zeroed scalar
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def huber_atomic(x_ptr, t_ptr, y_ptr, n, delta, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    t = tl.load(t_ptr + at, mask=mask)
    d = tl.abs(x - t)
    small = tl.minimum(d, delta)
    loss = tl.where(mask, small * (d - 0.5 * small), 0.0)
    tl.atomic_add(y_ptr, tl.sum(loss, axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        y = torch.zeros((), device=x.device, dtype=x.dtype)
        n = x.numel()
        huber_atomic[(triton.cdiv(n, 256),)](x, target, y, n, self.delta, BLOCK=256)
        return y
