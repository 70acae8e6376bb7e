# kind: mistake
# class: mismatch
# what: adds the chunk to the state before its queries read it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chunk_kernel(q_ptr, k_ptr, v_ptr, o_ptr, tokens, width, BT: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(0)
    d = tl.arange(0, BD)
    inner = tl.arange(0, BT)
    state = tl.zeros((BD, BD), dtype=tl.float32)
    for start in range(0, tokens, BT):
        t = start + inner
        at = (head * tokens + t[:, None]) * width + d[None, :]
        mask = (t[:, None] < tokens) & (d[None, :] < width)
        q = tl.load(q_ptr + at, mask=mask, other=0.0)
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        v = tl.load(v_ptr + at, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(inner[:, None] >= inner[None, :], scores, 0.0)
        state += tl.dot(tl.trans(k), v, input_precision="ieee")
        o = tl.dot(q, state, input_precision="ieee")
        o += tl.dot(scores, v, input_precision="ieee")
        tl.store(o_ptr + at, o, mask=mask)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        heads, tokens, width = q.shape
        o = torch.empty_like(v)
        wide = max(16, triton.next_power_of_2(width))
        chunk_kernel[(heads,)](q, k, v, o, tokens, width, BT=16, BD=wide)
        return o
