# kind: mistake
# class: mismatch|nonfinite
# what: the maximum begins at zero, and logits far below leave a sum of nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def alibi_kernel(q_ptr, k_ptr, v_ptr, slopes, y_ptr, length, width, scale, BK: tl.constexpr, BD: tl.constexpr):
    head, row = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BD)
    base = head * length * width
    q = tl.load(q_ptr + base + row * width + d, mask=d < width, other=0.0)
    slope = tl.exp(tl.load(slopes + head))
    m = 0.0
    l = 0.0
    o = tl.zeros((BD,), tl.float32)
    for start in range(0, length, BK):
        t = start + tl.arange(0, BK)
        at = base + t[:, None] * width + d[None, :]
        mask = (t[:, None] < length) & (d[None, :] < width)
        s = tl.sum(tl.load(k_ptr + at, mask=mask, other=0.0) * q[None, :], axis=1) * scale
        s -= slope * tl.abs(t - row).to(tl.float32)
        s = tl.where(t < length, s, -float("inf"))
        new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - new)
        kept = tl.exp(m - new)
        l = l * kept + tl.sum(p, axis=0)
        o = o * kept + tl.sum(tl.load(v_ptr + at, mask=mask, other=0.0) * p[:, None], axis=0)
        m = new
    tl.store(y_ptr + base + row * width + d, o / l, mask=d < width)


class ModelNew(nn.Module):
    def forward(self, q, k, v, slopes):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        heads, length, width = q.shape
        y = torch.empty_like(q)
        wide = triton.next_power_of_2(width)
        alibi_kernel[(heads, length)](q, k, v, slopes.contiguous(), y, length, width, width**-0.5, BK=32, BD=wide)
        return y
