# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step_kernel(p_ptr, g_ptr, m_ptr, v_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    g = tl.load(g_ptr + at, mask=inside, other=0.0)
    m = tl.load(m_ptr + at, mask=inside, other=0.0) * 0.9 + g * 0.1
    v = tl.load(v_ptr + at, mask=inside, other=0.0) * 0.99 + g * g * 0.01
    p = tl.load(p_ptr + at, mask=inside, other=0.0) - 0.01 * m / (tl.sqrt(v) + 0.001)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)
    tl.store(p_ptr + at, p, mask=inside)
    tl.store(out_ptr + at, p, mask=inside)


class ModelNew(nn.Module):
    def forward(self, p, g, m, v):
        out = torch.empty_like(p)
        step_kernel[(triton.cdiv(p.numel(), 256),)](p, g, m, v, out, p.numel(), BLOCK=256)
        return out
