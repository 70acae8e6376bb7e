# kind: mistake
# class: mismatch
# what: fills what is not to be seen with -10000
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    len_ptr,
    o_ptr,
    m_ptr,
    l_ptr,
    heads,
    capacity,
    width,
    parts,
    scale,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(len_ptr + sequence).to(tl.int32)
    t = part * BT + tl.arange(0, BT)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + (sequence * heads + head) * width + d, mask=d < width, other=0.0)
    at = ((sequence * capacity + t[:, None]) * heads + head) * width + d[None, :]
    seen = t < length
    mask = seen[:, None] & (d[None, :] < width)
    s = tl.sum(tl.load(k_ptr + at, mask=mask, other=0.0) * q[None, :], axis=1) * scale
    s = tl.where(seen, s, -10000.0)
    m = tl.max(s, axis=0)
    p = tl.exp(s - m)
    o = tl.sum(tl.load(v_ptr + at, mask=mask, other=0.0) * p[:, None], axis=0)
    slot = (sequence * heads + head) * parts + part
    tl.store(m_ptr + slot, m)
    tl.store(l_ptr + slot, tl.sum(p, axis=0))
    tl.store(o_ptr + slot * width + d, o, mask=d < width)


@triton.jit
def merge_kernel(o_ptr, m_ptr, l_ptr, y_ptr, width, parts, BP: tl.constexpr, BD: tl.constexpr):
    row = tl.program_id(0)
    p = tl.arange(0, BP)
    d = tl.arange(0, BD)
    m = tl.load(m_ptr + row * parts + p, mask=p < parts, other=-float("inf"))
    weight = tl.exp(m - tl.max(m, axis=0))
    total = tl.sum(weight * tl.load(l_ptr + row * parts + p, mask=p < parts, other=0.0), axis=0)
    at = (row * parts + p[:, None]) * width + d[None, :]
    o = tl.load(o_ptr + at, mask=(p[:, None] < parts) & (d[None, :] < width), other=0.0)
    tl.store(y_ptr + row * width + d, tl.sum(o * weight[:, None], axis=0) / total, mask=d < width)


class ModelNew(nn.Module):
    def forward(self, q, k, v, length):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, width = q.shape
        capacity = k.shape[1]
        parts = triton.cdiv(capacity, 16)
        o = torch.empty((batch, heads, parts, width), device=q.device, dtype=torch.float32)
        m = torch.empty((batch, heads, parts), device=q.device, dtype=torch.float32)
        l = torch.empty_like(m)
        y = torch.empty_like(q)
        wide = triton.next_power_of_2(width)
        part_kernel[(batch, heads, parts)](
            q, k, v, length, o, m, l, heads, capacity, width, parts, width**-0.5, BT=16, BD=wide
        )
        merge_kernel[(batch * heads,)](o, m, l, y, width, parts, BP=triton.next_power_of_2(parts), BD=wide)
        return y
