# kind: honest
# class: ok
# what: in place, with a helper of its own for the sign
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def lion_kernel(p_ptr, g_ptr, m_ptr, out_ptr, total, lr, wd, beta1, beta2, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    p = tl.load(p_ptr + at, mask=mask)
    g = tl.load(g_ptr + at, mask=mask)
    m = tl.load(m_ptr + at, mask=mask)
    p = p * (1 - lr * wd)
    p = p - lr * sign(m * beta1 + g * (1 - beta1))
    tl.store(p_ptr + at, p, mask=mask)
    tl.store(out_ptr + at, p, mask=mask)
    tl.store(m_ptr + at, m * beta2 + g * (1 - beta2), mask=mask)


class ModelNew(nn.Module):
    def forward(self, p, g, m):
        assert p.is_contiguous() and g.is_contiguous() and m.is_contiguous()
        out = torch.empty_like(p)
        lion_kernel[(triton.cdiv(p.numel(), 512),)](p, g, m, out, p.numel(), 0.01, 0.1, 0.9, 0.99, BLOCK=512)
        return out
