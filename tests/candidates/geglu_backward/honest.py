# kind: honest
# class: ok
# what: two gradients in one pass over a flat range
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def backward_kernel(dy_ptr, a_ptr, b_ptr, da_ptr, db_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    dy = tl.load(dy_ptr + at, mask=mask)
    a = tl.load(a_ptr + at, mask=mask)
    b = tl.load(b_ptr + at, mask=mask)
    phi = 0.5 * (1.0 + tl.erf(a * 0.7071067811865476))
    density = tl.exp(-0.5 * a * a) * 0.3989422804014327
    tl.store(db_ptr + at, dy * a * phi, mask=mask)
    tl.store(da_ptr + at, dy * b * (phi + a * density), mask=mask)


class ModelNew(nn.Module):
    def forward(self, dy, a, b):
        dy, a, b = dy.contiguous(), a.contiguous(), b.contiguous()
        da, db = torch.empty_like(a), torch.empty_like(b)
        backward_kernel[(triton.cdiv(a.numel(), 256),)](dy, a, b, da, db, a.numel(), BLOCK=256)
        return da, db
