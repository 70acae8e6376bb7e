# kind: honest
# class: ok
# what: a kernel makes the states of all chunks, a second one answers in parallel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def states_kernel(k_ptr, v_ptr, s_ptr, tokens, width, chunks, BT: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(0)
    d = tl.arange(0, BD)
    state = tl.zeros((BD, BD), dtype=tl.float32)
    for chunk in range(chunks):
        tl.store(s_ptr + (head * chunks + chunk) * BD * BD + d[:, None] * BD + d[None, :], state)
        t = chunk * BT + tl.arange(0, BT)
        at = (head * tokens + t[:, None]) * width + d[None, :]
        mask = (t[:, None] < tokens) & (d[None, :] < width)
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        v = tl.load(v_ptr + at, mask=mask, other=0.0)
        state = tl.dot(tl.trans(k), v, state, input_precision="ieee")


@triton.jit
def answers_kernel(q_ptr, k_ptr, v_ptr, s_ptr, o_ptr, tokens, width, chunks, BT: tl.constexpr, BD: tl.constexpr):
    chunk, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BD)
    inner = tl.arange(0, BT)
    t = chunk * BT + inner
    at = (head * tokens + t[:, None]) * width + d[None, :]
    mask = (t[:, None] < tokens) & (d[None, :] < width)
    q = tl.load(q_ptr + at, mask=mask, other=0.0)
    k = tl.load(k_ptr + at, mask=mask, other=0.0)
    v = tl.load(v_ptr + at, mask=mask, other=0.0)
    state = tl.load(s_ptr + (head * chunks + chunk) * BD * BD + d[:, None] * BD + d[None, :])
    o = tl.dot(q, state, input_precision="ieee")
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(inner[:, None] >= inner[None, :], scores, 0.0)
    tl.store(o_ptr + at, tl.dot(scores, v, o, input_precision="ieee"), mask=mask)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        heads, tokens, width = q.shape
        chunks = triton.cdiv(tokens, 16)
        wide = max(16, triton.next_power_of_2(width))
        states = torch.empty((heads, chunks, wide, wide), device=q.device, dtype=torch.float32)
        o = torch.empty_like(v)
        states_kernel[(heads,)](k, v, states, tokens, width, chunks, BT=16, BD=wide)
        answers_kernel[(chunks, heads)](q, k, v, states, o, tokens, width, chunks, BT=16, BD=wide)
        return o
