# kind: honest
# class: ok
# what: blocks of a row merged by a reduction over pairs of maximum and sum
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def merge(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    safe = tl.where(m == -float("inf"), 0.0, m)
    return m, s1 * tl.exp(m1 - safe) + s2 * tl.exp(m2 - safe)


@triton.jit
def lse_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    s = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
        m, s = merge(m, s, x, tl.where(at < columns, 1.0, 0.0))
    m_all, s_all = tl.reduce((m, s), 0, merge)
    tl.store(y_ptr + row, m_all + tl.log(s_all))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty((x.shape[0],), device=x.device, dtype=x.dtype)
        lse_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=512)
        return y
