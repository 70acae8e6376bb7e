# kind: mistake
# class: mismatch
# what: the smooth L1 loss: divided by delta
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def block_losses(x_ptr, t_ptr, part_ptr, n, delta, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    d = tl.abs(tl.load(x_ptr + at, mask=mask, other=0.0) - tl.load(t_ptr + at, mask=mask, other=0.0))
    loss = tl.where(d <= delta, 0.5 * d * d / delta, d - 0.5 * delta)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, loss, 0.0), axis=0))


@triton.jit
def mean_of_parts(part_ptr, y_ptr, parts, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(part_ptr + at, mask=at < parts, other=0.0), axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        n = x.numel()
        parts = triton.cdiv(n, 128)
        part = torch.empty((parts,), device=x.device, dtype=torch.float32)
        y = torch.empty((), device=x.device, dtype=x.dtype)
        block_losses[(parts,)](x, target, part, n, self.delta, BLOCK=128)
        mean_of_parts[(1,)](part, y, parts, n, BLOCK=triton.next_power_of_2(parts))
        return y
