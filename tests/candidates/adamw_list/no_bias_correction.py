# kind: mistake
# class: mismatch
# what: leaves the correction of the second moment out
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def adamw_kernel(
    p_ptr, g_ptr, m_ptr, v_ptr, out_ptr, n, lr, wd, b1, b2, eps, correct1, correct2, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    p = tl.load(p_ptr + at, mask=mask, other=0.0)
    g = tl.load(g_ptr + at, mask=mask, other=0.0)
    m = b1 * tl.load(m_ptr + at, mask=mask, other=0.0) + (1 - b1) * g
    v = b2 * tl.load(v_ptr + at, mask=mask, other=1.0) + (1 - b2) * g * g
    p = p * (1 - lr * wd) - lr * (m / correct1) / (tl.sqrt(v) + eps)
    tl.store(m_ptr + at, m, mask=mask)
    tl.store(v_ptr + at, v, mask=mask)
    tl.store(p_ptr + at, p, mask=mask)
    tl.store(out_ptr + at, p, mask=mask)


class ModelNew(nn.Module):
    def forward(self, params, grads, m, v):
        out = []
        for p, g, first, second in zip(params, grads, m, v):
            y = torch.empty_like(p)
            n = p.numel()
            adamw_kernel[(triton.cdiv(n, 128),)](
                p, g, first, second, y, n, 0.1, 0.2, 0.9, 0.99, 1e-3, 1 - 0.9**3, 1 - 0.99**3, BLOCK=128
            )
            out.append(y)
        return out
