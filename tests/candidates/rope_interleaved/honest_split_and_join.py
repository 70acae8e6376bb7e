# kind: honest
# class: ok
# what: splits and joins pairs in registers, in place on a copy
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_tile(x_ptr, cos_ptr, sin_ptr, rows, tokens, heads, PAIRS: tl.constexpr, pairs, BR: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    w = tl.arange(0, 2 * PAIRS)
    at = r[:, None] * (2 * pairs) + w[None, :]
    mask = (r[:, None] < rows) & (w[None, :] < 2 * pairs)
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    even, odd = tl.split(tl.reshape(x, (BR, PAIRS, 2)))
    p = tl.arange(0, PAIRS)
    token = r // heads % tokens
    where = token[:, None] * pairs + p[None, :]
    valid = (r[:, None] < rows) & (p[None, :] < pairs)
    c = tl.load(cos_ptr + where, mask=valid, other=0.0)
    s = tl.load(sin_ptr + where, mask=valid, other=0.0)
    turned = tl.reshape(tl.join(even * c - odd * s, odd * c + even * s), (BR, 2 * PAIRS))
    tl.store(x_ptr + at, turned, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        y = x.clone(memory_format=torch.contiguous_format)
        batch, tokens, heads, width = y.shape
        rows = batch * tokens * heads
        rope_tile[(triton.cdiv(rows, 16),)](
            y, cos.contiguous(), sin.contiguous(), rows, tokens, heads,
            PAIRS=triton.next_power_of_2(width // 2), pairs=width // 2, BR=16,
        )
        return y
