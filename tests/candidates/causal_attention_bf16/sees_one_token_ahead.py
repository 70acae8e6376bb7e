# kind: mistake
# class: mismatch
# what: the diagonal is off by one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _inner(acc, l_i, m_i, q, k_ptr, v_ptr, lo, hi, rows, cols_d, tokens, width, scale, DIAGONAL: tl.constexpr, BN: tl.constexpr):
    for start in range(lo, hi, BN):
        n = start + tl.arange(0, BN)
        inside = (n[:, None] < tokens) & (cols_d[None, :] < width)
        k = tl.load(k_ptr + n[:, None] * width + cols_d[None, :], mask=inside, other=0.0)
        qk = tl.dot(q, tl.trans(k)) * scale
        if DIAGONAL:
            qk = tl.where((rows[:, None] + 1 >= n[None, :]) & (n[None, :] < tokens), qk, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + n[:, None] * width + cols_d[None, :], mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def attention_forward(q_ptr, k_ptr, v_ptr, o_ptr, tokens, width, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head.to(tl.int64) * tokens * width
    rows = block * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    inside = (rows[:, None] < tokens) & (d[None, :] < width)
    q = tl.load(q_ptr + base + rows[:, None] * width + d[None, :], mask=inside, other=0.0)
    m_i = tl.full([BM], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, BD], dtype=tl.float32)
    below = block * BM // BN * BN
    acc, l_i, m_i = _inner(acc, l_i, m_i, q, k_ptr + base, v_ptr + base, 0, below, rows, d, tokens, width, scale, False, BN)
    last = min((block + 1) * BM, tokens)
    acc, l_i, m_i = _inner(acc, l_i, m_i, q, k_ptr + base, v_ptr + base, below, last, rows, d, tokens, width, scale, True, BN)
    out = acc / l_i[:, None]
    tl.store(o_ptr + base + rows[:, None] * width + d[None, :], out.to(o_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (t.contiguous() for t in (q, k, v))
        batch, heads, tokens, width = q.shape
        o = torch.empty_like(q)
        scale = width**-0.5 * 1.44269504
        attention_forward[(triton.cdiv(tokens, 16), batch * heads)](
            q, k, v, o, tokens, width, scale, BM=16, BN=16, BD=max(16, triton.next_power_of_2(width))
        )
        return o
