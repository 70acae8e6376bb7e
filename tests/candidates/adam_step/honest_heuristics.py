# kind: honest
# class: ok
# what: its block by heuristics, everything in place
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def adam_kernel(p_ptr, g_ptr, m_ptr, v_ptr, out_ptr, n, lr, b1, b2, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        mask = tl.full((BLOCK,), 1, dtype=tl.int1)
    else:
        mask = at < n
    g = tl.load(g_ptr + at, mask=mask, other=0.0)
    m = tl.load(m_ptr + at, mask=mask, other=0.0) * b1 + (1.0 - b1) * g
    v = tl.load(v_ptr + at, mask=mask, other=0.0) * b2 + (1.0 - b2) * g * g
    p = tl.load(p_ptr + at, mask=mask, other=0.0) - lr * m / (tl.sqrt(v) + eps)
    tl.store(m_ptr + at, m, mask=mask)
    tl.store(v_ptr + at, v, mask=mask)
    tl.store(p_ptr + at, p, mask=mask)
    tl.store(out_ptr + at, p, mask=mask)


class ModelNew(nn.Module):
    def forward(self, p, g, m, v):
        out = torch.empty_like(p)
        n = p.numel()
        adam_kernel[(triton.cdiv(n, 256),)](p, g, m, v, out, n, 1e-2, 0.9, 0.99, 1e-3, BLOCK=256)
        return out
