# kind: honest
# class: ok
# what: block pointers with the keys transposed, one head a program column
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def flash_kernel(q_ptr, k_ptr, v_ptr, o_ptr, tokens, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    first = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * tokens * D
    q_block = tl.make_block_ptr(q_ptr + base, (tokens, D), (D, 1), (first, 0), (BM, DP), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + base, (D, tokens), (1, D), (0, 0), (DP, BN), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + base, (tokens, D), (D, 1), (0, 0), (BN, DP), (1, 0))
    o_block = tl.make_block_ptr(o_ptr + base, (tokens, D), (D, 1), (first, 0), (BM, DP), (1, 0))
    rows = first + tl.arange(0, BM)
    q = tl.load(q_block, boundary_check=(0, 1), padding_option="zero")
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    l = tl.full((BM,), 0.0, dtype=tl.float32)
    acc = tl.zeros((BM, DP), dtype=tl.float32)
    for start in range(0, first + BM, BN):
        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.dot(q, k, input_precision="ieee") * scale
        columns = start + tl.arange(0, BN)
        s += tl.where(rows[:, None] >= columns[None, :], 0.0, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        l = l * alpha + tl.sum(p, 1)
        m = m_new
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    tl.store(o_block, acc / l[:, None], boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, head_width):
        super().__init__()
        self.scale = head_width**-0.5

    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, width = q.shape
        o = torch.empty_like(q)
        flash_kernel[(triton.cdiv(tokens, 32), batch * heads)](
            q, k, v, o, tokens, self.scale, BM=32, BN=32, D=width, DP=max(16, triton.next_power_of_2(width))
        )
        return o
