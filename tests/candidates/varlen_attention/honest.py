# kind: honest
# class: ok
# what: a grid of sequences, heads and blocks of the longest, which end early
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def varlen_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, offset_ptr, heads, width, scale, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):
    sequence, head = tl.program_id(1), tl.program_id(2)
    begin = tl.load(offset_ptr + sequence).to(tl.int32)
    end = tl.load(offset_ptr + sequence + 1).to(tl.int32)
    first = begin + tl.program_id(0) * BM
    if first >= end:
        return
    m = first + tl.arange(0, BM)
    d = tl.arange(0, BD)
    row = m[:, None] * heads * width + head * width + d[None, :]
    q = tl.load(q_ptr + row, mask=(m[:, None] < end) & (d[None, :] < width), other=0.0)
    best = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    for start in range(begin, end, BN):
        n = start + tl.arange(0, BN)
        at = n[:, None] * heads * width + head * width + d[None, :]
        mask = (n[:, None] < end) & (d[None, :] < width)
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        v = tl.load(v_ptr + at, mask=mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(n[None, :] < end, s, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(best - new)
        total = total * keep + tl.sum(p, 1)
        acc = acc * keep[:, None] + tl.dot(p, v, input_precision="ieee")
        best = new
    tl.store(o_ptr + row, acc / total[:, None], mask=(m[:, None] < end) & (d[None, :] < width))


class ModelNew(nn.Module):
    def forward(self, q, k, v, offsets):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        tokens, heads, width = q.shape
        o = torch.empty_like(q)
        grid = (triton.cdiv(tokens, 16), offsets.numel() - 1, heads)
        varlen_kernel[grid](
            q, k, v, o, offsets, heads, width, width**-0.5, BM=16, BN=16, BD=max(16, triton.next_power_of_2(width))
        )
        return o
