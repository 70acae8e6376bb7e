# kind: mistake
# class: mismatch
# what: pairs the halves of a head in place of neighbours
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, tokens, heads, pairs, BH: tl.constexpr, BP: tl.constexpr):
    token = tl.program_id(0) % tokens
    h = tl.arange(0, BH)[:, None]
    p = tl.arange(0, BP)[None, :]
    mask = (h < heads) & (p < pairs)
    base = tl.program_id(0) * heads * pairs * 2
    even = tl.load(x_ptr + base + h * pairs * 2 + p, mask=mask, other=0.0)
    odd = tl.load(x_ptr + base + h * pairs * 2 + p + pairs, mask=mask, other=0.0)
    c = tl.load(cos_ptr + token * pairs + p, mask=p < pairs, other=0.0)
    s = tl.load(sin_ptr + token * pairs + p, mask=p < pairs, other=0.0)
    tl.store(y_ptr + base + h * pairs * 2 + p, even * c - odd * s, mask=mask)
    tl.store(y_ptr + base + h * pairs * 2 + p + pairs, odd * c + even * s, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        x = x.contiguous()
        batch, tokens, heads, width = x.shape
        y = torch.empty_like(x)
        rope_kernel[(batch * tokens,)](
            x, cos.contiguous(), sin.contiguous(), y, tokens, heads, width // 2,
            BH=triton.next_power_of_2(heads), BP=triton.next_power_of_2(width // 2),
        )
        return y
