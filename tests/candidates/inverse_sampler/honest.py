# kind: honest
# class: ok
# what: counts the sums that are not above the number drawn
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(p, u, y, c, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    s = tl.cumsum(tl.load(p + row * c + at, at < c, 0.0), 0)
    total = tl.sum(tl.where(at == c - 1, s, 0.0), 0)
    want = tl.load(u + row) * total
    n = tl.sum(((s <= want) & (at < c)).to(tl.int64), 0)
    tl.store(y + row, tl.minimum(n, c - 1))


class ModelNew(nn.Module):
    def forward(self, p, u):
        p = p.contiguous()
        r, c = p.shape
        y = torch.empty(r, device=p.device, dtype=torch.int64)
        kernel[(r,)](p, u.contiguous(), y, c, B=triton.next_power_of_2(c))
        return y
