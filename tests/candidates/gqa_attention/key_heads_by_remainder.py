# kind: mistake
# class: mismatch|nonfinite
# what: takes the key head by the remainder, not by the quotient
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, tokens, heads, kv_heads, scale,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):
    head = tl.program_id(1)
    batch, h = head // heads, head % heads
    kv = batch * kv_heads + h % kv_heads
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, WIDTH)
    inside = rows[:, None] < tokens
    q = tl.load(q_ptr + head * tokens * WIDTH + rows[:, None] * WIDTH + d[None, :], mask=inside, other=0.0)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for start in range(0, tokens, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        at = kv * tokens * WIDTH + columns[:, None] * WIDTH + d[None, :]
        k = tl.load(k_ptr + at, mask=columns[:, None] < tokens, other=0.0)
        v = tl.load(v_ptr + at, mask=columns[:, None] < tokens, other=0.0)
        scores = tl.dot(q, tl.trans(k)).to(tl.float32) * scale
        legal = (columns[None, :] <= rows[:, None]) & (columns[None, :] < tokens)
        scores = tl.where(legal, scores, -float("inf"))
        highest = tl.maximum(best, tl.max(scores, axis=1))
        safe = tl.where(highest == -float("inf"), 0.0, highest)
        weight = tl.exp(scores - safe[:, None])
        keep = tl.exp(best - safe)
        total = total * keep + tl.sum(weight, axis=1)
        acc = acc * keep[:, None] + tl.dot(weight.to(v.dtype), v).to(tl.float32)
        best = highest
    tl.store(
        o_ptr + head * tokens * WIDTH + rows[:, None] * WIDTH + d[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside,
    )


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, width = q.shape
        out = torch.empty_like(q)
        attention_kernel[(triton.cdiv(tokens, 32), batch * heads)](
            q, k, v, out, tokens, heads, k.shape[1], width ** -0.5, BLOCK=32, WIDTH=width
        )
        return out
